"""The command line: a thin shell around the engine.

Exit codes: 0 parity, 1 a difference, 2 wrong usage or configuration, 3 the harness itself failed,
130 interrupted.
"""

import contextlib
import errno
import importlib
import itertools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

import typer

from parity.cli.options import DIFFERENCE, HARNESS, INTERRUPTED, PARITY, USAGE, renamed
from parity.compare.backends.environment import prepare

__all__ = ["app", "main"]

NAMES = (
    *("run", "prove", "list", "map", "convert", "inspect", "bench"),
    *("train", "bisect", "gate", "mutants", "report", "doctor"),
)
FULL = (errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Proves or measures that a Flax Linen model and its Flax NNX twin are the same program.",
)


@app.callback(invoke_without_command=True)
def help_without_command(context: typer.Context) -> None:
    """Prints the help when no command is given."""
    if context.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):
            context.get_help()  # prints it
        raise typer.Exit(USAGE)


for name in NAMES:
    app.command(name)(importlib.import_module(f"parity.cli.{name}").command)


def main() -> None:
    """Runs the command line; every kind of end has a separate exit code."""
    prepare(_backend(sys.argv))
    _end_as_if_interrupted(signal.SIGTERM)
    try:
        code = app(standalone_mode=False) or PARITY
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        code = _explain(error)
    code = _flushed(code)
    if code == INTERRUPTED:  # a running compiler thread crashes when Python shuts down
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _end_as_if_interrupted(ending: signal.Signals) -> None:
    """Handles SIGTERM as an interrupt: a preempted machine then has time to write a partial report."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(ending, signal.default_int_handler)


def _flushed(code: int) -> int:
    """Flushes standard output and returns the exit code; a closed pipe ends the run as interrupted."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED if isinstance(error, BrokenPipeError) else _explain(error)
    return code


def _backend(words: Sequence[str]) -> str:
    """Returns the backend that a command line names; JAX's platforms must be chosen before it is imported."""
    if any(word.partition("=")[0] == "--ray" for word in words):
        return "cpu"  # accelerators belong to the workers
    named = [after for word, after in itertools.pairwise(words) if word == "--backend"]
    named += [word.partition("=")[2] for word in words if word.startswith("--backend=")]
    return named[-1] if named else "cpu"


def _explain(error: Exception) -> int:
    """Prints an error and returns the exit code: one line for user errors, a traceback for internal ones."""
    if isinstance(error, BrokenPipeError):
        print("parity: the output pipe is closed; stopping", file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, OSError) and error.errno in FULL:
        print(f"parity: {error.strerror}: the output is incomplete; free some space", file=sys.stderr)
        return HARNESS
    if type(error).__name__ == "ReportNotWrittenError":
        print(f"parity: {error}", file=sys.stderr)
        return HARNESS
    message = getattr(error, "format_message", None)  # typer's usage errors, whichever click they are made of
    if message:
        words = renamed(error, *sys.argv[1:2]) or f"{message().rstrip('.')}; see parity --help"
        print(f"parity: {words}", file=sys.stderr)
        return USAGE
    if isinstance(error, ValueError):
        print(f"parity: {error}", file=sys.stderr)
        return USAGE
    side = sys.modules.get("parity.compare.side")
    if side and isinstance(error, side.SideError):
        print(f"parity: {str(error).splitlines()[0]}", file=sys.stderr)
        return DIFFERENCE
    traceback.print_exception(error)
    print("parity: the harness itself failed; the traceback above shows where", file=sys.stderr)
    return HARNESS
