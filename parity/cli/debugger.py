"""``parity run --pdb``: Python's debugger at the place where a side raised an error."""

import pdb
import sys
import traceback

__all__ = ["check_debuggable", "open_debugger"]


def check_debuggable(workers: int | None, processes: int, ray: str | None) -> int:
    """Returns the number of workers, which is one.

    Raises:
        ValueError: the options request other processes.
    """
    if ray is not None or processes > 1 or (workers or 1) > 1:
        raise ValueError(
            "--pdb: runs cases in this process, where the terminal is; leave out --ray, --processes and --workers"
        )
    return 1


def open_debugger(error: BaseException) -> None:
    """Opens the debugger at the place of an error; ``quit`` ends the run, ``continue`` continues it."""
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
