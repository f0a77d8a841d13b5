"""Compiling for slices that need not exist: in worker processes with limits, remembered on disk."""

import base64
import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parity.compare.backends.cache import DiskCache, default_folder, digest
from parity.compare.backends.environment import version
from parity.compare.backends.workers import Limits, Pool, RemoteError, WorkerError

__all__ = ["Compilation", "CompileError", "Compiler", "Request", "Resources", "shared"]

FORMAT = "3"
"""Part of every key: entries of another form are not found."""
PACKAGES = ("jax", "jaxlib", "libtpu")
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


class CompileError(RuntimeError):
    """A program did not compile: the compiler refused it, died, or passed a limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A program to be compiled, as plain data.

    Args:
        backend: for whom, such as ``aot:v5p:2x2x1``; names the slice.
        module: StableHLO bytecode, with shardings and locations.
        options: the compiler's options, serialised.
        devices: ids of the devices in the slice, in the order of the program.
    """

    backend: str
    module: bytes
    options: bytes
    devices: tuple[int, ...]

    @property
    def key(self) -> str:
        """Changes with all that the compiler's answer depends on.

        Locations are part of it, so that what is found never points at lines that have moved since.
        """
        versions = [f"{package} {version(package)}" for package in PACKAGES]
        flags = [f"{name}={os.environ.get(name, '')}" for name in FLAGS]
        place = [self.backend, ",".join(map(str, self.devices))]
        return digest([FORMAT, *versions, *flags, *place, self.options, self.module])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
    """What a compiler made of a program, as far as anyone looks; it cannot run.

    Args:
        text: optimised HLO.
        memory: bytes per device, by the names of JAX's memory analysis.
        cost: flops and the like.
        inputs, outputs: serialised shardings of the program's parameters and results.
        seconds: how long the compiler took.
        anonymous: digest of what the program does, see `parity.ir.hlo.anonymous`; None where it is not told.
    """

    text: str
    memory: Mapping[str, int]
    cost: Mapping[str, float]
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]
    seconds: float
    anonymous: str | None

    def as_text(self) -> str:
        """Returns the optimised HLO, as ``jax.stages.Compiled`` does."""
        return self.text

    def memory_analysis(self) -> Mapping[str, int]:
        """Returns the memory, as ``jax.stages.Compiled`` does."""
        return self.memory

    def cost_analysis(self) -> Mapping[str, float]:
        """Returns the cost, as ``jax.stages.Compiled`` does."""
        return self.cost

    def plain(self) -> dict[str, Any]:
        """Returns it as data for JSON."""
        shardings = {name: [base64.b85encode(one).decode() for one in getattr(self, name)] for name in SIDES}
        return {**dataclasses.asdict(self), **shardings}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> "Compilation":
        """Reads what `plain` wrote.

        Raises:
            ValueError, TypeError, KeyError: the data have another form.
        """
        shardings = {name: tuple(base64.b85decode(one) for one in plain[name]) for name in SIDES}
        return cls(**{**plain, **shardings})


SIDES = ("inputs", "outputs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """What a run may take of the machine.

    Args:
        workers: cases, or compiles of one case, at once.
        memory: bytes of host memory for all compiles together.
        seconds: wall time of one compile.
        cache: folder of what outlives the run; None for nothing.
    """

    workers: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    memory: int = dataclasses.field(default_factory=lambda: Limits().memory)
    seconds: float = Limits.seconds
    cache: Path | None = dataclasses.field(default_factory=default_folder)

    def share(self, parts: int) -> "Resources":
        """Returns what each of ``parts`` processes may take."""
        return dataclasses.replace(self, workers=max(1, self.workers // parts), memory=self.memory // parts)

    def compiler(self) -> "Compiler":
        """Returns a compiler that keeps to it."""
        cache = DiskCache(folder=self.cache) if self.cache else None
        return Compiler(self.workers, Limits(memory=self.memory, seconds=self.seconds), cache)


class Compiler:
    """Compiles in worker processes, each program once.

    Args:
        workers: how many compile at once.
        limits: what they may take.
        cache: what outlives the run; None for nothing.
    """

    def __init__(self, workers: int = 2, limits: Limits | None = None, cache: DiskCache | None = None):
        self.cache = cache
        self._pool = Pool(workers, limits or Limits(), {"JAX_PLATFORMS": "cpu"})

    def start(self, function: str, request: Request) -> Callable[[], Compilation]:
        """Starts to compile and returns what waits for the end.

        Args:
            function: ``module:function`` that takes the request and returns a `Compilation`.
            request: the program.
        """
        key = request.key
        if (found := self._cached(key)) is not None:
            return lambda: found
        future = self._pool.submit(function, request)
        return functools.partial(self._finish, future, key, request)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def _cached(self, key: str) -> Compilation | None:
        plain = self.cache.load(key) if self.cache else None
        try:
            return None if plain is None else Compilation.read(plain)
        except (ValueError, TypeError, KeyError):
            return None

    def _finish(self, future: concurrent.futures.Future, key: str, request: Request) -> Compilation:
        try:
            compilation = future.result()
        except WorkerError as error:
            raise CompileError(f"compile for {request.backend} {error}") from error
        except RemoteError as error:
            raise CompileError(f"compile for {request.backend} failed: {error}") from error
        if self.cache:
            self.cache.store(key, compilation.plain())
        return compilation


@functools.cache
def shared() -> Compiler:
    """Returns the compiler of those who bring none; it keeps nothing on disk."""
    return Compiler()
