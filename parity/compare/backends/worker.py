"""The inside of a worker process: makes the parent's calls, one after the other, until the parent ends.

Started by `parity.compare.backends.workers`, as ``python -m parity.compare.backends.worker FD``; FD is an inherited
socket to the parent.
"""

import importlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from parity.compare.backends.environment import prepare

Notify = Callable[[str], None]


def call(function: str, arguments: tuple, notify: Notify) -> tuple[str, Any]:
    """Calls ``module:function`` and returns ``("done", result)``, or ``("raised", (type, message))``.

    Args:
        function: gets ``arguments`` and ``notify=``.
        notify: takes a phase as text, which the parent names if the process dies.
    """
    module, _, name = function.partition(":")
    try:
        return "done", getattr(importlib.import_module(module), name)(*arguments, notify=notify)
    except Exception as error:
        return "raised", (type(error).__name__, str(error))


def main(descriptor: int) -> None:
    """Makes calls and sends their results. Ends with the parent, even during a call."""
    prepare()
    parent, calls = Connection(descriptor), queue.SimpleQueue()
    os.dup2(2, 1)  # output of libraries goes to stderr

    def listen() -> None:
        while True:
            try:
                calls.put(parent.recv())
            except (EOFError, OSError):
                os._exit(0)

    def notify(phase: str) -> None:
        parent.send(("phase", phase))

    threading.Thread(target=listen, daemon=True).start()
    while True:
        function, arguments = calls.get()
        reply = call(function, arguments, notify)
        try:
            parent.send(reply)
        except (ValueError, TypeError, AttributeError) as error:  # a result that cannot be sent
            parent.send(("raised", (type(error).__name__, f"result of {function}: {error}")))


if __name__ == "__main__":
    main(int(sys.argv[1]))
