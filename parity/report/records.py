"""Writes records and their forms: at once, and after checking that they can be written."""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

from parity.compare.backends.cache import replace_file
from parity.verdicts import plain


class ReportNotWrittenError(OSError):
    """A report could not be written; an existing file is unchanged."""


def check_writable(path: Path, option: str = "--json") -> None:
    """Raises ValueError, before any work, if a report cannot be written; follows a link, takes any stream."""
    if is_stream(path):
        return
    folder, problem = (path.resolve() if path.is_symlink() else path).parent, ""
    if path.is_dir():
        problem = "is a folder"
    elif not folder.is_dir():
        problem = f"folder {folder} does not exist"
    elif path.exists() and not os.access(path, os.W_OK):
        problem = "is not writable"
    else:
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            problem = f"cannot make a file in {folder} ({error.strerror})"
    if not problem:
        return
    raise ValueError(
        f"report path {path}: {problem}; expected a writable file name; choose another with {option}"
    )


def is_stream(path: Path) -> bool:
    """True for a path that is written to directly, such as /dev/stdout or a pipe, because it cannot be replaced."""
    return path.is_char_device() or path.is_fifo() or _stream_at(path) is not None


def _stream_at(path: Path) -> TextIO | None:
    """Returns standard output or error if a path refers to the same file, pipe or socket; else None."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return stream
    return None


def write_json(record: Any, path: Path) -> None:
    """Writes a record, or plain data, as JSON; see `write_text`."""
    write_text(json.dumps(plain(record), indent=1) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Writes a report at once, so that no partial one is ever visible; ReportNotWrittenError if that fails."""
    try:
        if stream := _stream_at(path):
            stream.write(text)
            stream.flush()
        elif is_stream(path):
            path.write_text(text, encoding="utf-8")
        else:
            replace_file(path.resolve(), text.encode())
    except OSError as error:
        why = error.strerror or str(error)
        raise ReportNotWrittenError(
            f"report path {path}: could not be written ({why}); what was there before is untouched; "
            "make room or choose another file, and run again"
        ) from error
