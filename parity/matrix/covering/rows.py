"""The chosen rows, by space and case."""

import json
from pathlib import Path

__all__ = ["PATH", "read_rows"]

PATH = Path(__file__).with_name("cases.json")


def read_rows() -> dict[str, dict[str, dict[str, str]]]:
    """Returns ``{space: {case: {factor: value}}}``."""
    return json.loads(PATH.read_text(encoding="utf-8"))
