"""Worker processes: calls that may crash, hang or exhaust the machine's memory run there, never in this process."""

import atexit
import concurrent.futures
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

GIB = 2**30
SHARE = 0.8
"""Default share of the machine's memory that workers may fill."""
SECONDS = 600.0
"""Default time limit of a call."""
POLL = 0.1
KEPT_LINES = 3
GRACE = 5.0
STALE = 4 * GIB
"""Bytes above which a worker is replaced after a call: compilers do not return memory."""

ALIVE: "set[Worker]" = set()


class WorkerError(RuntimeError):
    """A worker died or was stopped; the message gives the reason."""


class RemoteError(RuntimeError):
    """The function called in a worker raised; the message gives type and text."""


class _CrowdedError(Exception):
    """Several workers together need too much memory; this call must wait for the others."""


def machine_memory() -> int:
    """Returns the bytes of memory that this process may use: the machine's, or its control group's if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path("/sys/fs/cgroup", name).read_text()))
    return total


def default_memory() -> int:
    """Returns the bytes that the workers of a pool may fill unless another limit is given."""
    return int(SHARE * machine_memory())


class Worker:
    """A process that calls functions by name; see `parity.compare.backends.worker`.

    Args:
        environment: variables set on top of this process's.
    """

    def __init__(self, environment: Mapping[str, str] | None = None):
        left, right = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        path = [str(Path(__file__).parents[3]), *(entry for entry in sys.path if entry)]
        inherited = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
        with right:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "parity.compare.backends.worker", str(right.fileno())],
                env={**inherited, **(environment or {})},
                pass_fds=[right.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,  # the parent handles Ctrl-C
            )
        self.channel = Connection(left.detach())
        self.phase = ""
        self._start = 0.0
        ALIVE.add(self)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def resident(self) -> int:
        """Bytes of memory it holds now; 0 if the system does not report it."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    @property
    def seconds(self) -> float:
        """Duration of the call in seconds."""
        return time.monotonic() - self._start

    def begin(self, function: str, arguments: tuple) -> None:
        """Starts a call of ``module:function``.

        Raises:
            WorkerError: the process is gone.
        """
        self.phase, self._start = "", time.monotonic()
        try:
            self.channel.send((function, arguments))
        except OSError as error:
            raise WorkerError(self._obituary()) from error

    def poll(self, seconds: float) -> tuple[bool, Any]:
        """Waits up to ``seconds``; returns True and the result if the call has ended, else False and None.

        Raises:
            RemoteError: the function raised.
            WorkerError: the process died.
        """
        try:
            if not self.channel.poll(seconds):
                return False, None
            kind, value = self.channel.recv()
        except (EOFError, OSError) as error:
            raise WorkerError(self._obituary()) from error
        if kind == "phase":
            self.phase = value
            return False, None
        if kind == "raised":
            error = RemoteError(f"{value[0]}: {value[1]}")
            error.add_note("\n".join(["the worker wrote:", *self._last_words()]))
            raise error
        return True, value

    def kill(self) -> None:
        """Ends the process and those that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.channel.close()
        self._said.close()
        ALIVE.discard(self)

    def _last_words(self) -> list[str]:
        if self._said.closed:
            return []
        end = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, end - 4_096))
        lines = self._said.read().decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][-KEPT_LINES:]

    def _obituary(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self._process.kill()
        code = self._process.wait()
        try:
            how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        except ValueError:
            how = f"signal {-code}"
        words = " | ".join(self._last_words())
        return f"died with {how}" + (f": {words}" if words else "")


@atexit.register
def _kill_all() -> None:
    _kill(list(ALIVE))


def _kill(workers: list[Worker]) -> None:
    while workers:
        workers.pop().kill()


class Pool:
    """Workers that are started when needed, kept for the next call, and stopped if they pass a limit.

    Args:
        size: number of parallel calls.
        environment: variables set on top of this process's.
        memory: bytes of host memory for all workers together; see `default_memory`.
        seconds: wall time of one call.
    """

    def __init__(
        self,
        size: int,
        environment: Mapping[str, str] | None = None,
        *,
        memory: int | None = None,
        seconds: float = SECONDS,
    ):
        self._environment, self._seconds = environment, seconds
        self._memory = default_memory() if memory is None else memory
        self._turns = threading.BoundedSemaphore(size)
        self._state = threading.Condition()
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        weakref.finalize(self, _kill, self._idle)

    def submit(self, function: str, *arguments: Any) -> "concurrent.futures.Future[Any]":
        """Starts a call of ``module:function`` and returns the future of its result.

        The future raises `RemoteError` if the function raised, and `WorkerError` if the process died or was stopped.
        """
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        threading.Thread(target=self._fulfil, args=(future, function, arguments), daemon=True).start()
        return future

    def close(self) -> None:
        """Ends all workers."""
        with self._state:
            _kill(self._idle)
            for worker in self._busy:
                worker.kill()

    def _fulfil(self, future: concurrent.futures.Future, function: str, arguments: tuple) -> None:
        try:
            with self._turns:
                future.set_result(self._call(function, arguments))
        except BaseException as error:
            future.set_exception(error)

    def _call(self, function: str, arguments: tuple) -> Any:
        """Returns the result; begins again once the others have ended if the call had to yield to older ones."""
        while True:
            with contextlib.suppress(_CrowdedError), self._borrowed() as worker:
                worker.begin(function, arguments)
                while True:
                    ended, result = worker.poll(POLL)
                    if ended:
                        return result
                    self._hold_to_limits(worker)
            with self._state:
                self._state.wait_for(lambda: not self._busy)

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[Worker]:
        with self._state:
            worker = self._idle.pop() if self._idle else Worker(self._environment)
            self._busy.append(worker)
        sound = False
        try:
            yield worker
            sound = True
        except RemoteError:
            sound = True
            raise
        finally:
            with self._state:
                self._busy.remove(worker)
                if sound and worker.resident < STALE:
                    self._idle.append(worker)
                else:
                    worker.kill()
                self._state.notify_all()

    def _hold_to_limits(self, worker: Worker) -> None:
        """Raises if the call has passed a limit; if several share the memory, the youngest yields."""
        if worker.seconds > self._seconds:
            raise WorkerError(f"exceeded {self._seconds:g} s")
        with self._state:
            if self._filled() > self._memory:
                _kill(self._idle)
            if self._filled() <= self._memory:
                return
            if len(self._busy) == 1:
                raise WorkerError(f"exceeded {self._memory / GIB:.3g} GiB of host memory")
            if worker is self._busy[-1]:
                raise _CrowdedError

    def _filled(self) -> int:
        return sum(worker.resident for worker in (*self._idle, *self._busy))
