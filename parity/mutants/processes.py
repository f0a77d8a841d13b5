"""Processes in which mutants are tried: started separately, or forked from a server with the engine imported."""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Command", "Processes"]

SERVER = (
    "-c",
    "from parity.compare.backends.environment import prepare; prepare(); "
    "from parity.mutants.warm import main; main()",
)
"""Command of the fork server; it selects JAX's devices before the package of `warm` imports JAX."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Description of a process.

    Args:
        words: a module, and its arguments.
        folder: its working directory.
        path: folders that come first on the import path.
        limit: seconds that it may take.
        warm: if True, it may be forked from a process that has the engine, JAX and Flax imported.
        edited: packages that it must import from its own copy; the server must not have imported them.
    """

    words: Sequence[str]
    folder: Path
    path: Sequence[Path]
    limit: float
    warm: bool = False
    edited: Sequence[str] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that are set."""
        path = [*map(str, self.path), os.environ.get("PYTHONPATH", "")]
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        }


class Processes:
    """The running processes; `end` ends them all, with their children."""

    def __init__(self):
        self._running: set[subprocess.Popen] = set()
        self._idle: list[subprocess.Popen] = []
        self._lock = threading.Lock()
        self._over = False

    def run(self, command: Command) -> tuple[int, str]:
        """Returns the exit code and the output.

        Raises:
            TimeoutError: it took longer than its limit.
            InterruptedError: `end` was called.
        """
        if self._over:
            raise InterruptedError
        code, printed = self._forked(command) if command.warm else self._started(command)
        if self._over:
            raise InterruptedError
        return code, printed

    def _started(self, command: Command) -> tuple[int, str]:
        process = self._start(
            ["-m", *command.words],
            cwd=command.folder,
            env={**os.environ, **command.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            printed, _ = process.communicate(timeout=command.limit)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise TimeoutError(f"took over {command.limit:.0f} s") from error
        finally:
            self._running.discard(process)
        return process.returncode, printed

    def _forked(self, command: Command) -> tuple[int, str]:
        with self._lock:
            server = self._idle.pop() if self._idle else None
        ready = server is not None
        server = server or self._start(
            SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert server.stdin and server.stdout
        with tempfile.NamedTemporaryFile("r", prefix="parity-printed-") as printed:
            asked = {
                "command": list(command.words),
                "folder": str(command.folder),
                "path": list(map(str, command.path)),
                "edited": list(command.edited),
                "environment": command.environment,
                "printed": printed.name,
            }
            try:
                if not ready:
                    json.loads(server.stdout.readline())
                server.stdin.write(json.dumps(asked) + "\n")
                server.stdin.flush()
                if not select.select([server.stdout], [], [], command.limit)[0]:
                    raise TimeoutError(f"took over {command.limit:.0f} s")
                reply = json.loads(server.stdout.readline())
            except TimeoutError:
                self._let_go(server)
                raise
            except (OSError, ValueError) as error:
                self._let_go(server)
                if self._over:
                    raise InterruptedError from error
                return -1, f"the process that forks ended: {error!r}"
            with self._lock:
                self._idle.append(server)
            return reply["code"], printed.read()

    def _start(
        self, words: Sequence[str], env: Mapping[str, str] | None = None, **options
    ) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-P", *words], text=True, start_new_session=True, env=env, **options
        )
        self._running.add(process)
        return process

    def _let_go(self, server: subprocess.Popen) -> None:
        _kill(server)
        self._running.discard(server)
        for pipe in (server.stdin, server.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def end(self) -> None:
        """Ends all running processes; no further ones start."""
        self._over = True
        for process in tuple(self._running):
            _kill(process)
        with self._lock:
            while self._idle:
                self._let_go(self._idle.pop())


def _kill(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
