"""The core of the matrix: a small subset with every combination of options that occurs in the hand-written cases."""

import functools
import json
from pathlib import Path

__all__ = ["PATH", "core_ids"]

PATH = Path(__file__).with_name("core.json")
"""Written by ``python tests/campaigns matrix.core``."""


@functools.cache
def core_ids() -> frozenset[str]:
    """Returns the ids of the core's cases."""
    return frozenset(json.loads(PATH.read_text(encoding="utf-8")))
