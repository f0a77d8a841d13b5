"""Time by phase, and the error that names the phase."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

PHASES: tuple[str, ...] = ("build", "trace", "lower", "prove", "compile", "execute", "audit", "judge")
"""``audit`` follows random keys; ``judge`` is the work of channels themselves, the weight map included."""


class SideError(RuntimeError):
    """A side crashed: names the side, the phase and the cause."""

    def __init__(self, build: str, phase: str, cause: Exception):
        super().__init__(f"{build}: {phase} failed: {type(cause).__name__}: {cause}")
        self.build, self.phase, self.cause = build, phase, cause


class Clock:
    """Seconds spent in each phase since the last `take`.

    Args:
        notify: called with each phase that begins, as text.
    """

    def __init__(self, notify: Callable[[str], None] = lambda phase: None):
        self._notify = notify
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._inner = 0.0
        self._limit = self._until = math.inf

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limits the time of the block, which calls `check`."""
        self._limit, self._until = seconds, time.perf_counter() + seconds
        try:
            yield
        finally:
            self._until = math.inf

    def check(self) -> None:
        """Raises TimeoutError if the block of `limit` has exceeded its time."""
        if time.perf_counter() > self._until:
            raise TimeoutError(f"exceeded {self._limit:g} s")

    @contextlib.contextmanager
    def phase(self, build: str, name: str) -> Iterator[None]:
        """Adds the time of the block to ``name``, and attributes an exception to the side and phase.

        Raises:
            SideError: the block raised.
        """
        self._notify(f"{build}, {name}")
        with self.book(name):
            try:
                yield
            except Exception as cause:
                raise SideError(build, name, cause) from cause

    @contextlib.contextmanager
    def book(self, name: str) -> Iterator[None]:
        """Adds the time of the block to ``name``, except the time that inner blocks book."""
        start, outer, self._inner = time.perf_counter(), self._inner, 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._seconds[name] += spent - self._inner
            self._inner = outer + spent

    def take(self) -> dict[str, float]:
        """Returns the seconds and starts again from zero."""
        seconds, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return seconds
