"""What ``parity run`` does of an order: only what failed last, and with a debugger."""

import dataclasses
import pdb
import sys
import traceback
from typing import TYPE_CHECKING

import typer

from parity.cli.options import PARITY, console

if TYPE_CHECKING:
    from parity.cli.request import Request
    from parity.run.last_failed import LastFailed

__all__ = ["narrowed"]


def narrowed(order: "Request", latest: "LastFailed", *, last_failed: bool, debug: bool) -> "Request":
    """Returns an order with what these options ask for.

    Args:
        order: what else was asked.
        latest: what did not pass in earlier runs.
        last_failed: run that alone; ends where there is nothing.
        debug: open a debugger for what the sides raise.

    Raises:
        ValueError: they do not go with the rest of the order.
    """
    order = _only_failed(order, latest) if last_failed else order
    return _debugged(order) if debug else order


def _only_failed(order: "Request", latest: "LastFailed") -> "Request":
    from parity.cli.request import chosen

    if order.shard:
        raise ValueError("--last-failed: got --shard, whose parts run elsewhere; leave one of them out")
    failed = latest.failed()
    if failed is None:
        raise ValueError("--last-failed: nothing has run in this project yet; leave it out")
    if not failed:
        console().print("--last-failed: all cases that ran last passed; nothing to run", soft_wrap=True)
        raise typer.Exit(PARITY)
    narrowed = dataclasses.replace(order, only=failed)
    if not chosen(narrowed)[1]:
        raise ValueError(
            f"--last-failed: none of the cases that failed last is selected: {', '.join(sorted(failed))}; change the "
            "selectors, or leave it out"
        )
    return narrowed


def _debugged(order: "Request") -> "Request":
    if order.ray is not None or order.processes > 1 or (order.workers or 1) > 1:
        raise ValueError(
            "--pdb: runs cases in this process, where the terminal is; leave out --ray, --processes and --workers"
        )
    return dataclasses.replace(order, debug=_debug)


def _debug(error: BaseException) -> None:
    """Opens the debugger where an error was raised; its ``quit`` ends the run, its ``continue`` goes on."""
    from parity.run.errors import is_own

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [at for at, frame in enumerate(frames) if is_own(frame.f_code.co_filename)]
    up = (
        f"; `up {len(frames) - 1 - own[-1]}` goes to your own code"
        if own and own[-1] < len(frames) - 1
        else ""
    )
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    print(f"parity: `continue` goes on with the run, `quit` ends it{up}", file=sys.stderr)
    debugger = pdb.Pdb()
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    if debugger.quitting:
        raise KeyboardInterrupt
