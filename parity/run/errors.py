"""What is told of an exception: which side, the message, the line of the user's code, the traceback."""

import linecache
import sysconfig
import traceback
from pathlib import Path

from parity.verdicts import Finding

__all__ = ["error_finding", "is_own"]

LONGEST = 600
"""Characters of a message in a sentence; the report has all."""
OURS = str(Path(__file__).parents[1])
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_own(file: str) -> bool:
    """Returns whether a source file is the user's: neither ours nor a library's."""
    return "site-packages" not in file and not file.startswith((OURS, "<", *INSTALLED))


def error_finding(where: str, error: BaseException) -> Finding:
    """Returns a finding on an exception.

    Args:
        where: side and phase, in words.
        error: what was raised.
    """
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    message = " ".join(lines)
    if len(message) > LONGEST:
        first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]  # the colon promises what matters
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
    """Returns the innermost line that is neither ours nor a library's; empty where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if is_own(frame.filename)]
    if not theirs:
        return ""
    frame = theirs[-1]
    code = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"raised below {frame.filename}:{frame.lineno} in {frame.name}: {code}"
