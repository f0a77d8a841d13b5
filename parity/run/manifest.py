"""A manifest of everything that a verdict may depend on: files, packages, environment, interpreter, machine."""

import dataclasses
import fnmatch
import functools
import hashlib
import importlib.util
import json
import os
import platform
import re
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from parity.compare.backends.cache import default_folder, digest

CACHES = (
    *("__pycache__", "site-packages", ".git", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis"),
    *(".import_linter_cache", ".tox", ".nox", ".ipynb_checkpoints", "parity-report", ".*.sw?", ".#*", "*~"),
)
"""Names of files and folders that tools write and no case reads; installed packages count by their lists of files."""
VOLATILE = frozenset(
    {"PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"}
    | {f"PYTEST_XDIST_{name}" for name in ("WORKER", "WORKER_COUNT", "TESTRUNUID")}
)
"""Variables of the environment that shells, terminals, pytest and pytest-xdist set for themselves."""
PACKAGE = Path(__file__).parents[1]
LARGE = 2**22
"""Bytes above which a file counts by its size, times and inode instead of its content."""
MOST_FILES = 100_000
STDLIB = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
Found = tuple[str, str, int]
"""A label, a digest, and the time in nanoseconds at which the file last changed; 0 if it is not a file."""


class TooManyFilesError(ValueError):
    """A folder has more files than a manifest can read."""


def project_of(start: Path) -> Path:
    """Returns the checkout that a folder is in, or the folder itself; ignores a checkout of the whole home folder."""
    found = (each for each in (start, *start.parents) if (each / ".git").exists() and each != Path.home())
    return next(found, start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """Digests of all inputs of a verdict, by label, at one moment.

    Args:
        ignores: patterns of files and folders that no case reads, as in ``cache-ignores``; ``$NAME`` for a variable of
            the environment.
        written: files and folders that the run itself writes.
        folders: those whose files are in the manifest, and those of installed packages.
        entries: ``{label: (digest, time)}``, see `Found`.
    """

    project: Path
    ignores: tuple[str, ...]
    written: frozenset[str]
    folders: tuple[str, ...]
    entries: Mapping[str, tuple[str, int]]

    @classmethod
    def of(cls, project: Path, ignores: Sequence[str] = (), written: Iterable[Path] = ()) -> "Manifest":
        """Returns the manifest of this process and its files as they are now."""
        outputs = frozenset(os.path.realpath(path) for path in written)
        sites, roots = _import_path()
        roots = [str(project), *roots, *_editable(sites)]
        walk = _Walk(project, (*CACHES, *ignores), outputs)
        found = [*_process(ignores), *(one for root in roots for one in walk.files(root))]
        found += [one for site in sites for one in _installed(site, walk)]
        return cls(
            project=project,
            ignores=tuple(ignores),
            written=outputs,
            folders=tuple(dict.fromkeys((*roots, *sites, *STDLIB))),
            entries={label: (text, time) for label, text, time in found},
        )

    def again(self) -> "Manifest":
        """Returns the manifest as it is now."""
        return Manifest.of(self.project, self.ignores, map(Path, self.written))

    @property
    def key(self) -> str:
        """A digest of all entries, without times."""
        return digest([part for item in sorted(self.digests.items()) for part in item])

    @property
    def digests(self) -> dict[str, str]:
        """The digests by label."""
        return {label: text for label, (text, _) in self.entries.items()}

    def later_than(self, time: int) -> list[str]:
        """Returns the labels of files that changed after a time in nanoseconds."""
        return sorted(label for label, (_, changed) in self.entries.items() if changed >= time)

    def changed(self, other: "Manifest") -> list[str]:
        """Returns the labels that differ, in content or in the time of the last change."""
        return differing(self.entries, other.entries)


def differing(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Returns the labels whose values differ, or that only one side has."""
    return sorted(label for label in {*before, *now} if before.get(label) != now.get(label))


class _Walk:
    """Reads folders, each once; labels of files are relative to the project."""

    def __init__(self, project: Path, ignores: Sequence[str], written: frozenset[str]):
        self._project, self._written = f"{project}{os.sep}", written
        self._outputs = {Path(path).name for path in written}
        self._above = {str(folder) for path in written for folder in Path(path).parents}
        patterns = [pattern.rstrip("/") for pattern in ignores if not pattern.startswith("$")]
        self._names = _one_of(pattern for pattern in patterns if "/" not in pattern)
        self._paths = _one_of(pattern.strip("/") for pattern in patterns if "/" in pattern)
        self._seen: set[tuple[int, int]] = set()

    def files(self, root: str) -> Iterator[Found]:
        """Yields the files below a root, and the folders without any; TooManyFilesError if there are too many."""
        if Path(root).is_file():  # such as a zip on the import path
            yield self.file(root)
            return
        waiting, count = [root], 0
        while waiting:
            folder = waiting.pop()
            try:
                status = Path(folder).stat()
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as why:
                yield self._label(folder), f"unreadable {type(why).__name__}", 0
                continue
            if (status.st_dev, status.st_ino) in self._seen:
                continue
            self._seen.add((status.st_dev, status.st_ino))
            entries = [entry for entry in entries if not self._ignored(entry, root)]
            if not entries and os.path.realpath(folder) not in self._above:
                yield self._label(folder), "empty folder", 0
            for entry in entries:
                if entry.is_symlink():
                    yield f"link {self._label(entry.path)}", _target(entry.path), 0
                if entry.is_dir():
                    waiting.append(entry.path)
                    continue
                yield self.file(entry.path)
                count += 1
            if count > MOST_FILES:
                raise TooManyFilesError(
                    f"--cached: got more than {MOST_FILES:,} files below {root}, the last in {folder}; name folders "
                    'that no case reads in pyproject.toml: [tool.parity] cache-ignores = ["data"]'
                )

    def file(self, path: str) -> Found:
        """Returns a file with its digest."""
        try:
            status = Path(path).stat()
            return self._label(path), f"{status.st_mode} {_content(path, status)}", status.st_ctime_ns
        except OSError as why:
            return self._label(path), f"unreadable {type(why).__name__}", 0

    def _label(self, path: str) -> str:
        return path.removeprefix(self._project)

    def _ignored(self, entry: os.DirEntry[str], root: str) -> bool:
        relative = entry.path.removeprefix(root).strip(os.sep)
        if self._names.match(entry.name) or self._paths.match(relative):
            return True
        return entry.name in self._outputs and os.path.realpath(entry.path) in self._written


def _one_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Returns an expression that matches a text if one of the globs matches it as a whole."""
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - as it is written
    except OSError as why:
        return f"unreadable {type(why).__name__}"


def _content(path: str, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "no regular file"
    if status.st_size > LARGE:
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    return hashlib.sha256(Path(path).read_bytes() if status.st_size else b"").hexdigest()


def _import_path() -> tuple[list[str], list[str]]:
    """Returns the folders of installed packages on the import path, and the other folders on it."""
    scripts = {
        os.path.realpath(path) for path in (sysconfig.get_path("scripts"), Path(sys.executable).parent)
    }
    folders = [os.path.normpath(Path(entry).absolute()) for entry in sys.path]
    folders = [each for each in dict.fromkeys(folders) if Path(each).exists()]
    sites = [each for each in folders if Path(each).name in {"site-packages", "dist-packages"}]
    own = [each for each in folders if each not in sites and os.path.realpath(each) not in scripts]
    return sites, [each for each in own if not each.startswith(STDLIB)]


def _editable(sites: Iterable[str]) -> list[str]:
    """Returns the folders of packages that are installed as links to their sources."""
    found = []
    for file in (file for site in sites for file in sorted(Path(site).glob("*.dist-info/direct_url.json"))):
        origin = json.loads(file.read_text(encoding="utf-8"))
        if origin.get("dir_info", {}).get("editable"):
            found.append(unquote(urlparse(origin["url"]).path))
    return found


def _installed(site: str, walk: _Walk) -> Iterator[Found]:
    """Yields each installed package by its list of files and those edited since, and the files that are in no list."""
    listed = {"__pycache__"}
    for record in sorted(Path(site).glob("*.dist-info/RECORD")):
        text, since = record.read_text(encoding="utf-8", errors="surrogateescape"), record.stat().st_mtime_ns
        names = [line.rsplit(",", 2)[0].strip('"') for line in text.splitlines()]
        listed |= {name.partition("/")[0] for name in names}
        edited = [walk.file(path) for name in names if _is_newer(path := f"{site}/{name}", since)]
        yield f"package {record.parent.stem}", digest([text, *map(repr, edited)]), 0
    for entry in sorted(os.scandir(site), key=lambda entry: entry.name):
        if entry.name not in listed:
            yield from walk.files(entry.path) if entry.is_dir() else [walk.file(entry.path)]


def _is_newer(path: str, since: int) -> bool:
    """Returns True if a file was written after its package was installed; bytecode does not count."""
    try:
        return not path.endswith(".pyc") and os.stat(path).st_mtime_ns > since  # noqa: PTH116 - 40,000 files
    except OSError:
        return False


def _process(ignores: Sequence[str]) -> Iterator[Found]:
    """Yields the environment, the interpreter, JAX's settings and the machine."""
    hidden = [pattern[1:] for pattern in ignores if pattern.startswith("$")]
    for name, text in sorted(os.environ.items()):
        if name not in VOLATILE and not any(fnmatch.fnmatchcase(name, pattern) for pattern in hidden):
            yield f"variable {name}", digest([text]), 0
    # Our own pairs append a folder of this package, which counts as an installed one.
    imports = [entry for entry in sys.path if not Path(entry).absolute().is_relative_to(PACKAGE)]
    interpreter = (sys.version, sys.executable, sys.flags, sys.warnoptions, imports)
    yield "interpreter and import path", digest([*map(repr, interpreter)]), 0
    yield "working folder", str(Path.cwd()), 0
    import jax  # imported here, so that files can be watched before JAX is imported

    yield "settings of JAX", digest([*map(repr, sorted(jax.config.values.items()))]), 0
    yield "machine", digest([platform.platform(), str(os.cpu_count()), *_processors()]), 0


def _processors() -> Iterator[str]:
    for path, starts in (("/proc/cpuinfo", ("model name", "flags")), ("/proc/driver/nvidia/version", ("",))):
        if Path(path).exists():
            lines = Path(path).read_text().splitlines()
            yield from sorted({line for line in lines if line.startswith(starts)})


# --- files outside the project that a case opens or lists: its verdict holds as long as they stay unchanged ---

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
    """Returns ``{path: digest}`` of the paths that were opened or listed outside some folders, as they are now."""
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
