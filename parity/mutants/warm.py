"""Fork server with JAX, Flax and the engine imported: forks a child for each command, which saves seconds each.

Started by `parity.mutants.processes`. It reads a line of JSON for each command from stdin. It writes a line to stdout
when it is ready, and one with the exit code of each command. It starts no JAX backend and imports no module of the
project: a child imports those from its own import path. So forking is safe, although Python and JAX warn of it.
"""

import gc
import importlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["main"]

NEEDED = ("jax", "flax.linen", "flax.nnx", "optax", "parity.cli", "parity.run.schedule")
RAISED = 70


def main() -> None:
    """Runs commands until stdin ends."""
    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps("ready"), file=replies, flush=True)
    for line in sys.stdin:
        with warnings.catch_warnings(action="ignore"):
            child = os.fork()
        if not child:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), file=replies, flush=True)


def _become(asked: Mapping[str, Any]) -> NoReturn:
    """Runs one command in its folder, like ``python -m MODULE WORDS...``, and exits."""
    code = RAISED
    try:
        printed = os.open(asked["printed"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(printed, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(asked["folder"])
        os.environ.update(asked["environment"])
        if stale := sorted(set(asked["edited"]) & set(sys.modules)):
            raise ImportError(f"packages {stale} are imported, expected them to be found in {asked['path']}")
        sys.path[:0] = asked["path"]
        sys.dont_write_bytecode = True
        module, *sys.argv[1:] = asked["command"]
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
