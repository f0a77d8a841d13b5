"""Checkpoints of named arrays: folders that are written completely or not at all, and read exactly as requested.

Free of Flax. Orbax writes the arrays. A manifest next to them has the shape and dtype of each, and the size and
SHA-256 of each file, because Orbax and TensorStore would return bytes that changed on disk.
"""

import contextlib
import dataclasses
import enum
import gc
import hashlib
import json
import logging
import math
import os
import re
import resource
import secrets
import shutil
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "ARRAYS",
    "MANIFEST",
    "CheckpointError",
    "Kind",
    "Manifest",
    "check_writable",
    "find",
    "inspect",
    "read",
    "step_folder",
    "write",
]

ARRAYS, MANIFEST = "arrays", "manifest.json"
FORMAT = 1
STEP = re.compile(r"step_(\d{8,})")
SHOWN = 240
"""Largest number of characters that a message repeats of another library's error."""
SETTLED = 0.3
"""Seconds without a new file after which the remaining writes of a failed save count as ended."""
PATIENCE = 10.0
"""Longest wait for these writes, in seconds."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or read; the message names it, the fault and the next step."""


class Kind(enum.StrEnum):
    """Content of a checkpoint: all state that continues a training run, or the parameters that serve a model."""

    TRAIN_STATE = "train state"
    PARAMETERS = "parameters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a checkpoint, stored with it.

    Args:
        kind: its content, a value of `Kind`.
        about: notes of its writer, as JSON values.
        leaves: ``{name: {"shape": [...], "dtype": "float32"}}``; typed keys have ``impl`` as well.
        files: ``{path: {"bytes": 10, "sha256": "..."}}`` of all other files.
    """

    kind: str
    about: Mapping[str, Any]
    leaves: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Mapping[str, Any]]


def step_folder(root: Path, step: int) -> Path:
    """Returns the folder of a step's checkpoint in the folder of a run."""
    return Path(root) / f"step_{step:08d}"


def find(path: Path) -> Path:
    """Returns ``path`` if it is a checkpoint, else the checkpoint of the last step in it.

    Raises:
        CheckpointError: there is none. An interrupted save does not count.
    """
    path = Path(path)
    if (path / MANIFEST).exists():
        return path
    steps = {int(match[1]): entry for entry in _entries(path) if (match := STEP.fullmatch(entry.name))}
    if not steps:
        raise CheckpointError(
            f"{path}: got no checkpoint, expected a folder that a save has made; check the path"
        )
    return steps[max(steps)]


def check_writable(folder: Path, leaves: Mapping[str, Any]) -> None:
    """Raises unless a checkpoint could be written to a folder, which need not exist yet.

    Args:
        folder: folder for future checkpoints.
        leaves: ``{name: array}`` of one, abstract or not; the disk needs space for all of it, uncompressed.

    Raises:
        CheckpointError: the folder cannot be made or written to, or has too little space.
    """
    nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=nearest) as made:
            (Path(made) / folder.relative_to(nearest)).mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be written to ({_reason(error)}); name another folder"
        ) from error
    sizes = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves.values()]
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if sum(sizes) > free:
        raise CheckpointError(
            f"{folder}: has {free:,} bytes free, a checkpoint needs {sum(sizes):,}; free space, or name another"
        )
    if limit != resource.RLIM_INFINITY and max(sizes, default=0) > limit:
        raise CheckpointError(
            f"{folder}: files are limited to {limit:,} bytes, the largest leaf has {max(sizes):,}; raise the limit "
            "(ulimit -f)"
        )


def write(folder: Path, leaves: Mapping[str, Any], *, kind: str, about: Mapping[str, Any]) -> Path:
    """Writes arrays to a folder that appears when it is complete, and returns it.

    Args:
        folder: a new folder; other checkpoints next to it stay unchanged.
        leaves: ``{name: array}``; names are paths, typed keys are arrays too.
        kind: a value of `Kind`.
        about: notes to store, as JSON values.

    Raises:
        CheckpointError: the folder exists, the disk is full or not writable, or several processes hold the arrays.
    """
    folder = Path(folder).absolute()
    if jax.process_count() > 1:
        raise CheckpointError(
            f"{folder}: got {jax.process_count()} processes, expected one; save where one process sees all devices"
        )
    if folder.exists():
        raise CheckpointError(
            f"{folder}: already exists, expected a new folder; name another, or remove it first"
        )
    writer = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    partial = folder.with_name(f".{folder.name}.{writer}.partial")
    with _no_tracebacks():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            _remove_left_behind(folder.parent)
            partial.mkdir()
            _write_arrays(partial / ARRAYS, leaves)
            _write_manifest(partial, leaves, kind, about)
            _flush(partial)
            partial.rename(folder)
            _sync(folder.parent)
        except (OSError, ValueError, RuntimeError) as error:
            _settle(partial)
            _release(error)
            raise CheckpointError(
                f"{folder}: not written ({_reason(error)}); earlier checkpoints are unchanged; free space, or name "
                "another folder"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def inspect(folder: Path) -> Manifest:
    """Returns the manifest of a checkpoint.

    Raises:
        CheckpointError: the manifest is missing, damaged or of another format.
    """
    path = Path(folder) / MANIFEST
    if not path.exists():
        raise CheckpointError(f"{folder}: got no {MANIFEST}, expected a checkpoint; check the path")
    try:
        data = path.read_bytes()
        written = json.loads(data)
        body, digest = written["body"], written["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(path, f"cannot be read ({_one_line(error)})") from error
    if _digest(_dumped(body)) != digest or _dumped(written) != data:
        raise _damaged(path, "does not have the digest that it was written with")
    if body["format"] != FORMAT:
        raise CheckpointError(
            f"{folder}: got format {body['format']}, expected {FORMAT}; read it with the version that wrote it"
        )
    return Manifest(**{field.name: body[field.name] for field in dataclasses.fields(Manifest)})


def read(folder: Path, like: Mapping[str, Any], *, kind: str) -> dict[str, jax.Array]:
    """Reads arrays, each exactly as requested; nothing is cast, filled in or left out.

    Args:
        folder: the checkpoint.
        like: ``{name: jax.ShapeDtypeStruct}`` of all leaves; those with a sharding are placed by it.
        kind: a value of `Kind`.

    Raises:
        CheckpointError: leaves are missing, left over, or of another shape or dtype, all of them listed; or files are
            missing, left over, or changed since they were written.
    """
    folder = Path(folder).absolute()
    manifest = inspect(folder)
    if manifest.kind != kind:
        raise CheckpointError(f"{folder}: got {manifest.kind}, expected {kind}; name another checkpoint")
    _check_leaves(folder, manifest, like)
    _check_files(folder, manifest)
    stored = {name: leaf for name, leaf in manifest.leaves.items() if 0 not in leaf["shape"]}
    arrays = _read_arrays(folder / ARRAYS, stored, like)
    found = {}
    for name, leaf in manifest.leaves.items():
        array = arrays[name] if name in stored else jnp.zeros(leaf["shape"], leaf["dtype"])
        found[name] = array = _placed(array, leaf, like[name])
        if _kind_of(array) != _kind_of(like[name]):
            raise CheckpointError(
                f"{folder}: {name} was read as {_words(_kind_of(array))}, expected {_words(_kind_of(like[name]))}; "
                "a 64-bit leaf needs jax_enable_x64"
            )
    return found


# --- arrays ---


def _write_arrays(folder: Path, leaves: Mapping[str, Any]) -> None:
    """Writes all arrays except empty ones, which Orbax refuses."""
    import orbax.checkpoint as ocp

    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        if 0 not in leaf.shape:
            *parents, last = name.split("/")
            array = jax.random.key_data(leaf) if _is_key(leaf) else leaf
            _node(tree, parents)[last] = array if isinstance(array, jax.Array) else np.asarray(array)
    whole = ocp.type_handlers.create_type_handler_registry(*_written_whole())
    handler = ocp.PyTreeCheckpointHandler(type_handler_registry=whole)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(folder, args=ocp.args.PyTreeSave(tree))


def _written_whole() -> Iterator[tuple[Any, Any]]:
    """Yields types and handlers; one replica writes an array, because parts of several would need a program each."""
    import orbax.checkpoint as ocp

    yield np.ndarray, ocp.type_handlers.NumpyHandler()
    yield jax.Array, ocp.type_handlers.ArrayHandler(use_replica_parallel=False)


@contextlib.contextmanager
def _no_tracebacks() -> Iterator[None]:
    """Keeps Orbax and its remaining tasks from printing the traceback of an error that it also raises."""
    logs = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels, hook = [log.level for log in logs], sys.unraisablehook
    sys.unraisablehook = lambda one: None if "Event loop is closed" in str(one.exc_value) else hook(one)
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # unstarted coroutines
            yield
    finally:
        sys.unraisablehook = hook
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _settle(partial: Path) -> None:
    """Removes a folder until it no longer reappears: if one write fails, TensorStore continues with the others."""
    began = quiet = time.monotonic()
    while (now := time.monotonic()) < min(quiet + SETTLED, began + PATIENCE):
        if partial.exists():
            shutil.rmtree(partial, ignore_errors=True)
            quiet = now
        time.sleep(SETTLED / 10)


def _release(error: BaseException | None) -> None:
    """Drops what the frames of an error hold: a task that failed with it is reported now, while logs are off."""
    while error:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()


def _read_arrays(folder: Path, stored: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a leaf with a sharding onto its devices; keys and other leaves onto the host."""
    import orbax.checkpoint as ocp

    item: dict[str, Any] = {}
    how: dict[str, Any] = {}
    for name in stored:
        *parents, last = name.split("/")
        sharding = None if _is_key(like[name]) else getattr(like[name], "sharding", None)
        _node(item, parents)[last] = 0
        _node(how, parents)[last] = (
            ocp.ArrayRestoreArgs(sharding=sharding, global_shape=like[name].shape, strict=True)
            if sharding is not None
            else ocp.RestoreArgs(restore_type=np.ndarray)
        )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        tree = checkpointer.restore(folder, args=ocp.args.PyTreeRestore(item=item, restore_args=how))
    return {name: _node(tree, name.split("/")[:-1])[name.split("/")[-1]] for name in stored}


def _placed(array: Any, leaf: Mapping[str, Any], like: Any) -> jax.Array:
    sharding = getattr(like, "sharding", None)
    if "impl" in leaf:
        array = jax.random.wrap_key_data(jnp.array(array), impl=leaf["impl"])
    elif sharding is None:
        array = jnp.array(array, copy=True)
    return array if sharding is None else jax.device_put(array, sharding)


def _node(tree: dict[str, Any], names: list[str]) -> dict[str, Any]:
    for name in names:
        tree = tree.setdefault(name, {})
    return tree


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


# --- stored against requested ---


def _kind_of(leaf: Any) -> tuple[str, tuple[int, ...]]:
    return str(leaf.dtype), tuple(leaf.shape)


def _words(kind: tuple[str, tuple[int, ...]]) -> str:
    return f"{kind[0]}{list(kind[1])}"


def _check_leaves(folder: Path, manifest: Manifest, like: Mapping[str, Any]) -> None:
    found = {name: (leaf["dtype"], tuple(leaf["shape"])) for name, leaf in manifest.leaves.items()}
    asked = {name: _kind_of(leaf) for name, leaf in like.items()}
    wrong = [f"{name}: missing, expected {_words(asked[name])}" for name in sorted(set(asked) - set(found))]
    wrong += [
        f"{name}: got {_words(found[name])}, expected no such leaf"
        for name in sorted(set(found) - set(asked))
    ]
    wrong += [
        f"{name}: got {_words(found[name])}, expected {_words(asked[name])}"
        for name in sorted(set(found) & set(asked))
        if found[name] != asked[name]
    ]
    if wrong:
        listed = "\n  ".join(wrong)
        raise CheckpointError(
            f"{folder}: {len(wrong)} of {len({*found, *asked})} leaves are not as expected; restore into the model and "
            f"optimizer that were saved:\n  {listed}"
        )


def _check_files(folder: Path, manifest: Manifest) -> None:
    present = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    wrong = [f"{name}: missing" for name in sorted(set(manifest.files) - set(present))]
    wrong += [f"{name}: not of this checkpoint" for name in sorted(set(present) - set(manifest.files))]
    for name in sorted(set(present) & set(manifest.files)):
        written, size = manifest.files[name], present[name].stat().st_size
        if size != written["bytes"]:
            wrong.append(f"{name}: {size} bytes, expected {written['bytes']}")
        elif _digest_of(present[name]) != written["sha256"]:
            wrong.append(f"{name}: its bytes are not those that were written")
    if wrong:
        raise _damaged(folder, "; ".join(wrong))


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: damaged: {what}; restore an older checkpoint")


# --- files ---


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(folder: Path) -> Iterator[Path]:
    """Yields every file except the manifest."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / MANIFEST:
            yield path


def _write_manifest(folder: Path, leaves: Mapping[str, Any], kind: str, about: Mapping[str, Any]) -> None:
    described = {}
    for name, leaf in leaves.items():
        dtype, shape = _kind_of(leaf)
        key = {"impl": str(jax.random.key_impl(leaf))} if _is_key(leaf) else {}
        described[name] = {"shape": list(shape), "dtype": dtype, **key}
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _digest_of(path)}
        for path in _files(folder)
    }
    body = {"format": FORMAT, "kind": kind, "about": about, "leaves": described, "files": files}
    (folder / MANIFEST).write_bytes(_dumped({"body": body, "sha256": _digest(_dumped(body))}))


def _dumped(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(folder: Path) -> None:
    """Flushes everything from the system to the disk before the folder gets its name."""
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_left_behind(folder: Path) -> None:
    """Removes partial folders of saves that were killed on this machine."""
    pattern = re.compile(rf"\..*\.{re.escape(socket.gethostname())}-(\d+)-[0-9a-f]+\.partial")
    for entry in _entries(folder):
        match = pattern.fullmatch(entry.name)
        if match and not _lives(int(match[1])):
            shutil.rmtree(entry, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _reason(error: Exception) -> str:
    """Returns the system's reason for an error, including one that TensorStore forwards; else the first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else _one_line(error)


def _one_line(error: Exception) -> str:
    line = next(iter(str(error).splitlines()), "")
    if len(line) > SHOWN:  # the system's message is at the end, after paths
        line = f"{line[: SHOWN // 3]} ... {line[-SHOWN * 2 // 3 :]}"
    return f"{type(error).__name__}: {line}"
