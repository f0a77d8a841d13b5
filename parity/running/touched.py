"""What this process has read beside sources: data files, and modules of the project that were imported late."""

import functools
import os
import sys
from pathlib import Path
from typing import Any

from parity.backends.cache import default_folder
from parity.running.content import file_digest
from parity.running.imports import ENGINE, INSTALLED, is_project

__all__ = ["found_cases", "touched", "watch"]

NOT_DATA = (*INSTALLED, "/proc/", "/sys/", "/dev/", str(ENGINE))
_read: dict[str, None] = {}
_loaded: set[str] = set()


@functools.cache
def watch() -> None:
    """Begins to notice which files Python opens; all of them count for each case that is run after."""
    sys.addaudithook(_notice)


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    path, mode = os.fsdecode(arguments[0]), arguments[1]
    if not (isinstance(mode, str) and set(mode) & set("wax")):
        _read[path] = None


def found_cases() -> None:
    """Says that the cases are found: modules that are imported from now on are a case's doing."""
    _loaded.update(sys.modules)


def touched() -> dict[str, str]:
    """Returns ``{path: digest}`` of all that was read, as it is now."""
    cache = str(default_folder())
    paths = [str(Path(path).absolute()) for path in list(_read)]
    files = [
        path
        for path in paths
        if not path.startswith((*NOT_DATA, cache)) and not path.endswith((".py", ".pyc"))
    ]
    late = [sys.modules[name] for name in sorted(set(sys.modules) - _loaded)] if _loaded else []
    files += [str(module.__file__) for module in late if is_project(module)]
    return {path: file_digest(path) for path in sorted(set(files)) if "__pycache__" not in path}
