"""Compiling for slices that need not exist: in worker processes with limits, cached on disk."""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from parity.compare.backends.cache import DiskCache, default_folder, digest
from parity.compare.backends.environment import version
from parity.compare.backends.workers import SECONDS, Pool, RemoteError, WorkerError, default_memory

FORMAT = "4"
"""Part of every key: entries of another format are not found."""
PACKAGES = ("jax", "jaxlib", "libtpu")
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


class CompileError(RuntimeError):
    """A program did not compile: the compiler refused it, died, or passed a limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A program to be compiled, as plain data.

    Args:
        backend: the target, such as ``aot:v5p:2x2x1``; names the slice.
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
        """A digest of all inputs of the compiler.

        Locations are part of it, so that cached results never point at lines that have moved since.
        """
        versions = [f"{package} {version(package)}" for package in PACKAGES]
        flags = [f"{name}={os.environ.get(name, '')}" for name in FLAGS]
        place = [self.backend, ",".join(map(str, self.devices))]
        return digest([FORMAT, *versions, *flags, *place, self.options, self.module])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
    """The results of a compiler that are read later; they cannot run.

    Args:
        text: optimised HLO.
        memory: bytes per device, by the names of JAX's memory analysis.
        cost: flops and the like.
        inputs, outputs: serialised shardings of the program's parameters and results.
        seconds: time of the compile.
        anonymous: digest of the program without names, see `parity.ir.hlo.anonymous`; None if it is unknown.
    """

    text: str
    memory: Mapping[str, int]
    cost: Mapping[str, float]
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]
    seconds: float
    anonymous: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """Limits of the machine's resources for a run.

    Args:
        workers: cases, or compiles of one case, at once.
        memory: bytes of host memory for all compiles together.
        seconds: wall time of one compile.
        cache: folder for results that outlive the run; None for none.
    """

    workers: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    memory: int = dataclasses.field(default_factory=default_memory)
    seconds: float = SECONDS
    cache: Path | None = dataclasses.field(default_factory=default_folder)

    def share(self, parts: int) -> "Resources":
        """Returns the limits of each of ``parts`` processes."""
        return dataclasses.replace(self, workers=max(1, self.workers // parts), memory=self.memory // parts)


class Compiler:
    """Compiles in worker processes, each program once, and caches the results on disk if the limits name a folder."""

    def __init__(self, limits: Resources):
        self.cache = DiskCache(folder=limits.cache) if limits.cache else None
        environment = {"JAX_PLATFORMS": "cpu"}
        self._pool = Pool(limits.workers, environment, memory=limits.memory, seconds=limits.seconds)

    def start(self, function: str, request: Request) -> Callable[[], Compilation]:
        """Starts ``module:function``, which returns a `Compilation`; returns a function that waits for the result."""
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
            return None if plain is None else msgspec.convert(plain, Compilation)
        except msgspec.ValidationError:
            return None

    def _finish(self, future: concurrent.futures.Future, key: str, request: Request) -> Compilation:
        try:
            compilation = future.result()
        except WorkerError as error:
            raise CompileError(f"compile for {request.backend} {error}") from error
        except RemoteError as error:
            raise CompileError(f"compile for {request.backend} failed: {error}") from error
        if self.cache:
            self.cache.store(key, msgspec.to_builtins(compilation))
        return compilation


@functools.cache
def shared() -> Compiler:
    """Returns the shared default compiler, which keeps nothing on disk."""
    return Compiler(Resources(workers=2, cache=None))
