"""A folder of small results that outlive the process; safe for parallel processes."""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUFFIX = ".json.gz"
MOST = 2**30
KEPT = 0.8
"""If the folder is full, the least recently used entries are removed until this share is left."""


def default_folder() -> Path:
    """Returns the folder for caches of this user: ``$XDG_CACHE_HOME/parity``, else ``~/.cache/parity``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parity"


def digest(parts: Sequence[bytes | str]) -> str:
    """Returns a hash of the parts that distinguishes any two sequences of parts."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def replace_file(path: Path, data: bytes) -> None:
    """Writes to a temporary name and renames the file, so that no partial file is ever visible."""
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115
    try:
        with file:
            file.write(data)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiskCache:
    """Entries by key, each a file; an unreadable file counts as a missing entry.

    Args:
        folder: made when the first entry is stored.
        most: maximum number of bytes of all entries.
    """

    folder: Path = dataclasses.field(default_factory=default_folder)
    most: int = MOST

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def load(self, key: str) -> Any | None:
        """Returns the value stored under ``key``, or None."""
        path = self._path(key)
        try:
            entry = json.loads(gzip.decompress(path.read_bytes()))
            if entry["key"] != key:
                return None
            os.utime(path)
        except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error):
            return None
        return entry["value"]

    def store(self, key: str, value: Any) -> None:
        """Stores ``value``, plain data; does nothing if the folder cannot be written."""
        data = gzip.compress(json.dumps({"key": key, "value": value}).encode(), compresslevel=4)
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self._path(key), data)
            self._shrink()

    def entries(self) -> list[tuple[float, int, Path]]:
        """Returns time of last use, bytes and path of each entry, the least recently used first."""
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _shrink(self) -> None:
        entries = self.entries()
        held = sum(size for _, size, _ in entries)
        if held <= self.most:
            return
        for _, size, path in entries:
            path.unlink(missing_ok=True)
            held -= size
            if held <= KEPT * self.most:
                return
