"""Captures the terminal output of C++ code for exceptions."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

__all__ = ["quiet"]

KEPT_LINES = 4


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Captures output to file descriptor 2 in this block; an exception gets its last lines as a note."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        screen = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except Exception as error:
            kept.seek(0)
            lines = kept.read().decode(errors="replace").splitlines()
            error.add_note("\n".join(["the compiler wrote:", *lines[-KEPT_LINES:]]))
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)
