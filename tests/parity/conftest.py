"""Shared fixtures of the end-to-end tests: the command line in and out of this process, and planted models."""

import contextlib
import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

import parity
from parity import cli
from parity.builds.build import Flavour
from parity.cases.case import Case

REPO = Path(__file__).parents[2]
MODELS = ("models_linen", "models_nnx", "parity.matrix")


@dataclasses.dataclass(frozen=True)
class Ended:
    """Result of a command: exit code and output."""

    code: int
    out: str
    err: str


class Shell:
    """Runs ``parity`` in separate processes; the package is installed, or else on PYTHONPATH."""

    def __init__(self):
        probe = [sys.executable, "-I", "-c", "import parity; print(parity.__file__)"]
        found = subprocess.run(probe, cwd="/", capture_output=True, text=True).stdout.strip()
        self.installed = bool(found) and Path(found).parents[1] == REPO  # and not another checkout

    def environment(self, *path: Path, **variables: str) -> dict[str, str]:
        """Returns the environment of a child: ``path`` first on PYTHONPATH, without our device settings."""
        left = ("JAX_PLATFORMS", "PYTHONPATH", "COLUMNS", "PYTEST_ADDOPTS")
        kept = {name: value for name, value in os.environ.items() if name not in left}
        flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
        folders = [str(folder) for folder in path] + ([] if self.installed else [str(REPO)])
        own = {"PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**kept, **own, "XLA_FLAGS": " ".join(flags), **variables}

    def start(self, *arguments: str, cwd: Path, path: Sequence[Path] = (), **variables: str):
        """Starts ``python -m parity`` and returns the process, its output piped and line by line."""
        return subprocess.Popen(
            [sys.executable, "-m", "parity", *arguments],
            cwd=cwd,
            env=self.environment(*path, PYTHONUNBUFFERED="1", **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, cwd: Path, path: Sequence[Path] = (), **variables: str) -> Ended:
        """Runs ``python -m parity`` to its end."""
        process = self.start(*arguments, cwd=cwd, path=path, **variables)
        try:
            out, err = process.communicate(timeout=300)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return Ended(process.returncode, out, err)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory) -> Iterator[None]:
    """Sets an empty cache for the tests, outside the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shell() -> Shell:
    return Shell()


def _scratch(module: ModuleType) -> bool:
    """True if a module comes from a test's temporary folder."""
    file = getattr(module, "__file__", None) or ""
    return file.startswith(tempfile.gettempdir()) and not file.startswith(str(REPO))


@contextlib.contextmanager
def imports_undone() -> Iterator[None]:
    """Undoes a block's imports of models and scratch modules, and its changes of the import path."""
    modules, path = dict(sys.modules), list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - set(modules):
            if name.startswith(MODELS) or _scratch(sys.modules[name]):
                del sys.modules[name]
        sys.modules.update({name: module for name, module in modules.items() if name.startswith(MODELS)})
        if "parity.matrix" in modules:
            parity.matrix = modules["parity.matrix"]


@pytest.fixture
def undone_imports() -> Iterator[None]:
    with imports_undone():
        yield


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """``command("run", ..., cwd=folder)`` runs the command line in this process."""

    def run(*arguments: str, cwd: Path = tmp_path) -> Ended:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["parity", *arguments])
        monkeypatch.delenv("COLUMNS", raising=False)
        # Bytecode is known by size and second: a file that the same test edits within a second is not read again.
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        capsys.readouterr()
        with imports_undone(), pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return Ended(ended.value.code or 0, printed.out, printed.err)

    return run


class Planting:
    """Scratch copies of models_nnx with edits."""

    @staticmethod
    def copy(folder: Path, files: Mapping[str, Sequence[Sequence[str]]]) -> Path:
        """Copies models_nnx into ``folder`` and replaces texts in its files.

        Args:
            folder: destination of the copy, to be put on the import path.
            files: file name -> ``(old, new)`` texts; the old one must be there exactly once. If the old
                text is empty, the new one is appended to the file, or is a new file.
        """
        shutil.copytree(
            REPO / "models_nnx", folder / "models_nnx", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name, edits in files.items():
            path = folder / "models_nnx" / name
            text = path.read_text() if path.exists() else ""
            for old, new in edits:
                assert not old or text.count(old) == 1, f"{name}: {text.count(old)} times {old!r}"
                text = text.replace(old, new) if old else text + new
            path.write_text(text)
        return folder

    @staticmethod
    def case(folder: Path, id: str, pair: str = "") -> Case:
        """Returns the case ``id`` built from the models in ``folder``.

        Args:
            folder: from `copy`.
            id: id of the case.
            pair: ``module:NAME`` in ``parity.matrix``; by default from the prefix of the id.
        """
        module, _, attribute = (pair or f"{id.split('-')[0]}:PAIR").partition(":")
        with imports_undone():
            for name in [name for name in sys.modules if name.startswith(MODELS)]:
                del sys.modules[name]
            sys.path.insert(0, str(folder))
            importlib.invalidate_caches()
            cases = getattr(importlib.import_module(f"parity.matrix.{module}"), attribute).cases({})
            decoders = importlib.import_module("parity.matrix.decoders")
            for flavour in Flavour:  # imported now: a side is built later, when the original models are back
                decoders.builder(flavour)
            return next(case for case in cases if case.id == id)


@pytest.fixture(scope="session")
def planting() -> type[Planting]:
    return Planting
