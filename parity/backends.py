"""Where programs are lowered, compiled and run."""

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Callable, Collection
from typing import Any, Protocol

import jax

from parity.aot import AheadOfTime
from parity.compiler import Compiler
from parity.meshes import MeshSpec
from parity.quiet import quiet
from parity.topologies import FAMILIES, Topology

__all__ = ["BACKENDS", "Accelerators", "AnyMesh", "Backend", "Devices", "Lowering", "find", "known_backends"]

AnyMesh = jax.sharding.Mesh | jax.sharding.AbstractMesh


class Backend(Protocol):
    """A place for programs."""

    @property
    def name(self) -> str:
        """As the command line spells it."""
        ...

    @property
    def executes(self) -> bool:
        """Whether it can run programs."""
        ...

    @property
    def inspects(self) -> bool:
        """Whether one comes for the compiled programs, so that they are looked at even if proved."""
        ...

    @property
    def topology(self) -> Topology | None:
        """The slice that need not exist; None for devices that this process has."""
        ...

    @property
    def placement(self) -> jax.sharding.Sharding | None:
        """Where the arguments of a program without a mesh lie; None for JAX's default device."""
        ...

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """Returns the mesh that stands for ``spec`` here, mostly itself; axes in ``held`` keep their size.

        Raises:
            HeldAxesError: those axes alone need more devices than there are.
            ValueError: there is no such mesh.
        """
        ...

    def mesh(self, spec: MeshSpec) -> AnyMesh | None:
        """Returns the mesh of ``spec``, or None for a single device.

        Raises:
            ValueError: the mesh needs more devices than there are.
        """
        ...

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """Returns the ambient mesh of ``spec``, entered by ``with``."""
        ...

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """Returns the program lowered for this backend."""
        ...

    def start(self, lowered: jax.stages.Lowered) -> Callable[[], Any]:
        """Starts to compile, where that can be done elsewhere; returns what gives the compiled program.

        What it gives is a ``jax.stages.Compiled``, or reads like one where the backend runs nothing.

        Raises:
            ValueError: it cannot compile.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """A backend that compiles for devices of this process and runs on them.

    Args:
        name: as the command line spells it.
        devices: finds the devices.
        options: what the compiler is told, as flags of XLA without the dashes; a flag that is also in
            ``XLA_FLAGS`` keeps the value it has there.
    """

    name: str
    devices: Callable[[], list]
    options: tuple[tuple[str, Any], ...] = ()
    executes: bool = dataclasses.field(default=True, init=False)
    inspects: bool = dataclasses.field(default=False, init=False)
    topology: None = dataclasses.field(default=None, init=False)
    placement: None = dataclasses.field(default=None, init=False)

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """See `Backend`."""
        self.mesh(spec)
        return spec

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        return spec.on(self.devices()) if spec.axes else None

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """See `Backend`."""
        mesh = self.mesh(spec)
        return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """See `Backend`."""
        return traced.lower()

    def start(self, lowered: jax.stages.Lowered) -> Callable[[], jax.stages.Compiled]:
        """See `Backend`. A program that shall run is compiled in this process, when asked for."""
        chosen = os.environ.get("XLA_FLAGS", "")
        options = {flag: value for flag, value in self.options if flag not in chosen}

        def compile_here() -> jax.stages.Compiled:
            with quiet():
                return lowered.compile(compiler_options=options)

        return compile_here


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerators(Devices):
    """A backend of devices that this machine may have, however many: meshes are fitted to them.

    Args:
        remedy: how to get them, in words.
    """

    remedy: str = ""

    @property
    def found(self) -> list:
        """The devices.

        Raises:
            ValueError: there is none.
        """
        try:
            with quiet():
                return self.devices()
        except RuntimeError as error:
            reason = str(error).partition(" (set JAX_PLATFORMS")[0]
            raise ValueError(
                f"backend {self.name}: JAX finds no such device ({reason}); {self.remedy}"
            ) from error

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """Returns the mesh as it fits the devices."""
        return spec.fitted(len(self.found), held)

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        return spec.on(self.found) if spec.axes else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowering:
    """A backend that only lowers, for a TPU slice that need not exist; a proof needs no more.

    Args:
        topology: the slice.
    """

    topology: Topology
    executes: bool = dataclasses.field(default=False, init=False)
    inspects: bool = dataclasses.field(default=False, init=False)
    placement: None = dataclasses.field(default=None, init=False)

    @property
    def name(self) -> str:
        """Name in case records."""
        return f"lower:{self.topology}"

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """See `Backend`."""
        self.mesh(spec)
        return spec

    def mesh(self, spec: MeshSpec) -> jax.sharding.AbstractMesh | None:
        """See `Backend`."""
        spec.check(self.topology.devices, str(self.topology))
        return spec.abstract() if spec.axes else None

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """See `Backend`."""
        mesh = self.mesh(spec)
        return contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh)

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """See `Backend`."""
        return traced.lower(lowering_platforms=("tpu",))

    def start(self, lowered: jax.stages.Lowered) -> Callable[[], Any]:
        """See `Backend`."""
        raise ValueError(f"backend {self.name}: it only lowers; use it with `parity prove`")


FAST_TO_COMPILE = (("xla_backend_optimization_level", 0),)
"""For programs that run once: LLVM's optimisation takes most of a compile. XLA's own passes stay as they are."""

BACKENDS: dict[str, Backend] = {
    "cpu": Devices(name="cpu", devices=lambda: jax.devices("cpu"), options=FAST_TO_COMPILE),
    "tpu": Accelerators(
        name="tpu",
        devices=lambda: jax.devices("tpu"),
        remedy='run on a TPU machine with pip install "jax[tpu]"; aot:v5p:2x2x1 compiles without one',
    ),
    "gpu": Accelerators(
        name="gpu",
        devices=lambda: jax.devices("gpu"),
        remedy='run on a machine with a GPU, with pip install "jax[cuda12]"',
    ),
}


def known_backends() -> list[str]:
    """Returns the backends as people write them, the ones behind a topology with what it may be."""
    return [*BACKENDS, f"aot:TOPOLOGY ({', '.join(FAMILIES)})"]


def find(name: str, compiler: Compiler | None = None) -> Backend:
    """Returns the backend called ``name``.

    Args:
        name: as the command line spells it.
        compiler: compiles for backends that do so in other processes; one for all by default.

    Raises:
        ValueError: there is none of that name.
    """
    family, _, rest = name.partition(":")
    if family == "aot":
        return AheadOfTime(topology=Topology.parse(rest), compiler=compiler)
    if family == "lower":
        return Lowering(topology=Topology.parse(rest))
    if name not in BACKENDS:
        near = difflib.get_close_matches(name.partition(":")[0], [*BACKENDS, "aot"], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join([*BACKENDS, "aot:TOPOLOGY"])
        raise ValueError(f"backend {name!r}: expected one of {known}, such as aot:v5p:2x2x1{hint}")
    return BACKENDS[name]
