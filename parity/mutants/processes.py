"""Runs the command of a mutant, called in a worker process: forked with the engine imported, or started afresh.

Forking saves seconds for each command. It is safe, although Python and JAX warn of it: the worker starts no JAX
backend and imports no module of the project. A child imports those from its own import path.
"""

import gc
import importlib
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

__all__ = ["RUN", "run"]

RUN = "parity.mutants.processes:run"
"""`run`, as `parity.compare.backends.workers.Pool` calls it."""
NEEDED = ("jax", "flax.linen", "flax.nnx", "optax", "parity.cli", "parity.run.schedule")
RAISED = 70


def run(
    words: Sequence[str],
    folder: Path,
    path: Sequence[Path],
    edited: Sequence[str] = (),
    forked: bool = True,
    notify: Callable[[str], None] = lambda phase: None,
) -> tuple[int, str]:
    """Runs ``python -m MODULE WORDS...`` and returns its exit code and output.

    Args:
        words: the module, and its arguments.
        folder: the working directory.
        path: folders that come first on the import path.
        edited: packages that must be imported from there; the worker must not have imported them.
        forked: if False, the engine is imported from scratch, too.
        notify: not used.
    """
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, path), os.environ.get("PYTHONPATH", "")])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "200",
    }
    with tempfile.TemporaryFile("w+") as printed:
        if forked:
            for name in NEEDED:
                importlib.import_module(name)
            gc.collect()
            gc.freeze()
            with warnings.catch_warnings(action="ignore"):
                child = os.fork()
            if not child:
                _become(words, folder, path, edited, environment, printed.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        else:
            command = [sys.executable, "-P", "-m", *words]
            streams = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT}
            code = subprocess.call(command, cwd=folder, env={**os.environ, **environment}, **streams)
        printed.seek(0)
        return code, printed.read()


def _become(
    words: Sequence[str],
    folder: Path,
    path: Sequence[Path],
    edited: Sequence[str],
    environment: Mapping[str, str],
    printed: int,
) -> NoReturn:
    """Runs the command in this process, and exits."""
    code = RAISED
    try:
        for descriptor in (1, 2):
            os.dup2(printed, descriptor)
        os.chdir(folder)
        os.environ.update(environment)
        if stale := sorted(set(edited) & set(sys.modules)):
            raise ImportError(f"packages {stale} are imported, expected them to be found in {path}")
        sys.path[:0] = map(str, path)
        sys.dont_write_bytecode = True
        module, *sys.argv[1:] = words
        sys.argv[0] = module
        command = importlib.import_module("parity.cli" if module == "parity" else module)
        command.main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
