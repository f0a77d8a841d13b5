"""Files outside the project that a case opens or lists: its verdict holds as long as they stay unchanged."""

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.compare.backends.cache import default_folder, digest
from parity.run.manifest import CACHES

__all__ = ["digest_at", "opened", "watch"]

PATHS = {"open": 0, "os.listdir": 0, "os.scandir": 0, "sqlite3.connect": 0, "ctypes.dlopen": 0}
"""Audit events, each with the position of the path among its arguments."""
SYSTEM = ("/proc/", "/sys/", "/dev/")
_read: dict[str, None] = {}


@functools.cache
def watch() -> None:
    """Starts to record the paths that Python opens and lists; each counts for all cases that run after it."""
    sys.addaudithook(_notice)


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in PATHS or not isinstance(path := arguments[PATHS[event]], str | bytes | os.PathLike):
        return
    if event == "open" and _creates(*arguments[1:]):
        return
    _read[os.path.normpath(Path(os.fsdecode(path)).absolute())] = None


def _creates(mode: str | None, flags: int) -> bool:
    """Returns True if a call of open creates a file, or a nameless one in a folder, as `tempfile` does."""
    temporary = getattr(os, "O_TMPFILE", os.O_EXCL)
    return bool({*(mode or "")} & {*"wax"} or flags & os.O_EXCL or flags & temporary == temporary)


def digest_at(path: str) -> str:
    """Returns a digest of the content of a file, or of the names in a folder; ``absent`` if there is neither."""
    try:
        if Path(path).is_dir():
            return digest(sorted(each.name for each in Path(path).iterdir()))
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else "absent"
    except OSError:
        return "absent"


def opened(known: Sequence[str]) -> dict[str, str]:
    """Returns ``{path: digest}`` of the paths that were opened or listed outside some folders, as they are now.

    Args:
        known: folders whose files a manifest has.
    """
    folders = (*known, str(default_folder()))
    for path in list(_read):
        if _is_known(_source(path), folders):
            del _read[path]
    return {path: digest_at(path) for path in sorted({*map(_source, list(_read))})}


def _is_known(path: str, folders: Sequence[str]) -> bool:
    """Returns True for system paths and paths in the manifest, but not below a folder that the manifest leaves out."""
    within = (
        path.removeprefix(folder) for folder in folders if f"{path}{os.sep}".startswith(f"{folder}{os.sep}")
    )
    return path.startswith(SYSTEM) or any(not {*Path(rest).parts} & {*CACHES} for rest in within)


def _source(path: str) -> str:
    """Returns the source of a bytecode file that Python wrote, else the path itself."""
    try:
        return importlib.util.source_from_cache(path)
    except ValueError:  # no bytecode, or bytecode of another tool, such as pytest
        return path
