"""Runs the command of a mutant in a new process, called in a worker: it ends with the worker, after its time limit."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

RUN = "parity.mutants.processes:run"


def run(
    words: Sequence[str],
    folder: Path,
    path: Sequence[Path],
    notify: Callable[[str], None] = lambda phase: None,
) -> tuple[int, str]:
    """Runs ``python -m WORDS...`` in a folder, with ``path`` first on the import path; returns exit code and output."""
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
