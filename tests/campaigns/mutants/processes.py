"""Runs the command of a mutant in a new process, called in a worker: it ends with the worker, after its time limit."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from parity.compare.backends.workers import Pool

__all__ = ["RUN", "make_pool", "run"]

RUN = "campaigns.mutants.processes:run"
"""`run`, as `parity.compare.backends.workers.Pool` calls it."""
TESTS = str(Path(__file__).parents[2])


def make_pool(workers: int, seconds: float) -> Pool:
    """Returns a pool whose workers find this package, last on the path: tests have folders named as packages."""
    path = os.pathsep.join([*filter(None, sys.path), TESTS])
    return Pool(workers, {"PYTHONPATH": path}, seconds=seconds)


def run(
    words: Sequence[str],
    folder: Path,
    path: Sequence[Path],
    notify: Callable[[str], None] = lambda phase: None,
) -> tuple[int, str]:
    """Runs ``python -m MODULE WORDS...`` and returns its exit code and output.

    Args:
        words: the module, and its arguments.
        folder: the working directory.
        path: folders that come first on the import path.
        notify: not used.
    """
    first = [*map(str, path), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, first)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "200",
    }
    with tempfile.TemporaryFile("w+") as printed:
        code = subprocess.call(
            [sys.executable, "-P", "-m", *words],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        printed.seek(0)
        return code, printed.read()
