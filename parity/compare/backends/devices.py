"""The backends of this process: simulated devices of the CPU, accelerators of this machine, and lowering only."""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import jax

from parity.builds.meshes import MeshSpec, Topology
from parity.compare.backends.backend import LEVEL, Backend, quiet

IN_ORDER = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""Compiler options for several simulated devices. By default they may begin independent collectives in different
orders, and each waits for another one's until XLA aborts the process."""
_COMPILERS = concurrent.futures.ThreadPoolExecutor(2)
"""One thread for each side: the compiler runs without Python's lock."""


def _device_count(lowered: jax.stages.Lowered) -> int:
    module = lowered.compiler_ir()
    assert module is not None  # of StableHLO, which every lowered program has
    return module.operation.attributes["mhlo.num_partitions"].value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices(Backend):
    """A backend that compiles for devices of this process and runs on them.

    Args:
        name: name on the command line, and JAX's name of the platform.
        tiled: True if arrays are stored in tiles there.
        options: compiler options, as flags of XLA without the dashes; LLVM's level in ``XLA_FLAGS`` replaces level 0.
        remedy: how to get accelerators, to whose number meshes are fitted; empty for simulated devices.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    tiled: bool = False
    remedy: str = ""
    executes = True

    @property
    def found(self) -> list:
        """The devices.

        Raises:
            ValueError: there is none.
        """
        if not self.remedy:
            return jax.devices(self.name)
        try:
            with quiet():
                return jax.devices(self.name)
        except RuntimeError as error:
            reason = str(error).partition(" (set JAX_PLATFORMS")[0]
            raise ValueError(
                f"backend {self.name}: JAX finds no such device ({reason}); {self.remedy}"
            ) from error

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """See `Backend`."""
        return spec.fitted(len(self.found), held) if self.remedy else super().fit(spec, held)

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        return spec.on(self.found) if spec.axes else None

    def start(self, lowered: jax.stages.Lowered) -> Callable[[], jax.stages.Compiled]:
        """See `Backend`. A thread of this process compiles a program that will run."""
        options = dict(self.options)
        if not options.get(LEVEL) and LEVEL in os.environ.get("XLA_FLAGS", ""):
            options = {}
        if self.options and _device_count(lowered) > 1:
            options |= IN_ORDER
        compiling = _COMPILERS.submit(lowered.compile, compiler_options=options)

        def wait() -> jax.stages.Compiled:
            with quiet():
                return compiling.result()

        return wait


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowering(Backend):
    """A backend that only lowers, for a TPU slice that need not exist; a proof needs no more."""

    topology: Topology
    name: str = dataclasses.field(init=False)
    tiled = True

    def __post_init__(self):
        object.__setattr__(self, "name", f"lower:{self.topology}")

    def mesh(self, spec: MeshSpec) -> jax.sharding.AbstractMesh | None:
        """See `Backend`."""
        spec.check(self.topology.devices, str(self.topology))
        return spec.abstract() if spec.axes else None

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """See `Backend`."""
        return traced.lower(lowering_platforms=("tpu",))

    def start(self, lowered: jax.stages.Lowered) -> NoReturn:
        """See `Backend`."""
        raise ValueError(f"backend {self.name}: it only lowers; use it with `parity prove`")
