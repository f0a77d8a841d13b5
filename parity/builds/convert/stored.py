"""Reads and writes Orbax checkpoints as ``{path: array}`` on the host."""

import contextlib
import dataclasses
import gc
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from parity.builds.tree import differing, flatten, to_host

ITEM = "_METADATA"
"""The file that every Orbax item has."""
STEP = re.compile(r"(?:\D*[_-])?(\d+)")
SHOWN = 240
SETTLING = 0.3
"""Seconds after a failure until Orbax's pending reads and writes have ended, too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """Content of a checkpoint.

    Args:
        arrays: by path, on the host; typed keys are their uint32 data. Variables and boxes give their value.
    """

    folder: Path
    arrays: dict[str, np.ndarray]


def find_item(folder: Path) -> Path:
    """Returns the item at a path: the folder itself, the only item in it, or that of the last step.

    Args:
        folder: of ``StandardCheckpointer``, ``PyTreeCheckpointer`` or ``CheckpointManager``, its step or its item.

    Raises:
        ValueError: there is no item, or several.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: got no folder, expected an Orbax checkpoint; check the path")
    if (folder / ITEM).is_file():
        return folder
    inside = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    items = [entry for entry in inside if (entry / ITEM).is_file()]
    if len(items) == 1:
        return items[0]
    if items:
        names = ", ".join(entry.name for entry in items)
        raise ValueError(f"{folder}: got the items {names}, expected one; name one, such as {items[0]}")
    steps = {int(match[1]): entry for entry in inside if (match := STEP.fullmatch(entry.name))}
    if not steps:
        raise ValueError(
            f"{folder}: got no {ITEM}, expected a checkpoint that Orbax has written; check the path, or save it again"
        )
    return find_item(steps[max(steps)])


def read_stored(folder: Path) -> Stored:
    """Reads all arrays of a checkpoint onto the host; see `find_item` for the folder."""
    item = find_item(Path(folder).absolute())
    with _no_log():
        restored, problem = _restored(item)
        if problem:
            time.sleep(SETTLING)
            gc.collect()
    if problem:
        raise ValueError(
            f"{item}: cannot be read ({problem}), expected a whole checkpoint; save it again, or name another"
        )
    arrays = _arrays(restored)
    if not arrays:
        raise ValueError(f"{item}: got no arrays, expected those of a model; name another")
    return Stored(folder=item, arrays=arrays)


def _restored(item: Path) -> tuple[Any, str]:
    """Returns the tree of an item and an empty text, or None and the error as text."""
    import orbax.checkpoint as ocp

    try:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            found: Any = checkpointer.metadata(item)
            as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
            how = jax.tree.map(lambda leaf: as_numpy, found.item_metadata.tree)
            return checkpointer.restore(item, args=ocp.args.PyTreeRestore(restore_args=how)), ""
    except Exception as error:  # Orbax and TensorStore raise errors of many types for a damaged file
        return None, f"{type(error).__name__}: {one_line(error)}"


def check_new(folder: Path) -> None:
    """Raises a `ValueError` if a checkpoint cannot be written."""
    folder = folder.absolute()
    if folder.exists() or folder.is_symlink():
        raise ValueError(f"{folder}: already exists, expected a new folder; name another, or remove it first")
    if not folder.parent.is_dir() or not os.access(folder.parent, os.W_OK):
        raise ValueError(
            f"{folder}: {folder.parent} is no folder that can be written to, expected one; make it first"
        )


def write_stored(folder: Path, tree: Any) -> None:
    """Writes a checkpoint as ``StandardCheckpointer`` does; the folder appears after a successful check of its bits.

    Raises:
        ValueError: the folder exists, the disk is full or not writable, or other bits were read back.
    """
    import orbax.checkpoint as ocp

    check_new(folder)
    folder = folder.absolute()
    prefix = f".{folder.name}.partial-"
    with (
        _no_log(),
        tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent, ignore_cleanup_errors=True) as around,
    ):
        partial = Path(around, folder.name)
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(partial, tree)
                checkpointer.wait_until_finished()
            again, wanted = read_stored(partial).arrays, _arrays(tree)
            if wrong := differing(wanted, again):
                raise OSError(f"{', '.join(wrong)} read back as other bits")
            partial.rename(folder)
        except (OSError, ValueError, RuntimeError) as error:
            time.sleep(SETTLING)
            raise ValueError(
                f"{folder}: not written ({_reason(error)}); make room, or name another"
            ) from error


def _reason(error: BaseException) -> str:
    """Returns the operating system's reason of an error, also through TensorStore; else the start of its message."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else one_line(error)


def _arrays(tree: Any) -> dict[str, np.ndarray]:
    return {path.removesuffix("/value"): array for path, array in to_host(flatten(tree)).items()}


@contextlib.contextmanager
def _no_log() -> Iterator[None]:
    """Suppresses tracebacks that Orbax and its background tasks log for an error that they also raise."""
    logs = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels, hook = [log.level for log in logs], sys.unraisablehook
    sys.unraisablehook = lambda ignored: None
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def one_line(error: BaseException) -> str:
    """Returns the message of an error on one line, cut at `SHOWN` characters."""
    return " ".join(str(error).split())[:SHOWN]
