"""Findings on exceptions: the side, the message, the line of the user's code, the traceback."""

import linecache
import sysconfig
import traceback
from pathlib import Path

from parity.verdicts import Finding

__all__ = ["error_finding", "is_own"]

LONGEST = 600
"""Maximum number of characters of a message in a sentence; the report has the whole message."""
OURS = str(Path(__file__).parents[1])
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_own(file: str) -> bool:
    """Returns True if a source file is the user's: neither of this package nor of a library."""
    return "site-packages" not in file and not file.startswith((OURS, "<", *INSTALLED))


def error_finding(where: str, error: BaseException) -> Finding:
    """Returns a finding on an exception.

    Args:
        where: side and phase, as text.
        error: the exception.
    """
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    message = " ".join(lines)
    if len(message) > LONGEST:
        first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]  # a colon needs the next line
        message = f"{first[:LONGEST]} ... (the JSON report has the rest)"
    return Finding(
        where=where,
        reference="",
        candidate=f"{type(error).__name__}: {message}",
        next_step=_place(error),
        labels=("", ""),
        traceback="".join(traceback.format_exception(error)),
    )


def _place(error: BaseException) -> str:
    """Returns the innermost line of the user's code; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    right = [frame for frame in frames if is_own(frame.filename)]
    if not right:
        return ""
    frame = right[-1]
    code = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"raised below {frame.filename}:{frame.lineno} in {frame.name}: {code}"
