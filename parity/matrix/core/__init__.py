"""The core of the matrix: few cases in which all that meets that meets anywhere in the cases written by hand."""

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
