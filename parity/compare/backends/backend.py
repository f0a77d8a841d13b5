"""The interface of backends, which lower, compile and run programs."""

import contextlib
from collections.abc import Callable, Collection
from typing import Any, Protocol

import jax

from parity.builds.meshes import MeshSpec
from parity.builds.topologies import Topology

__all__ = ["AnyMesh", "Backend"]

AnyMesh = jax.sharding.Mesh | jax.sharding.AbstractMesh


class Backend(Protocol):
    """A backend, which lowers, compiles and may run programs."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def executes(self) -> bool:
        """True if it can run programs."""
        ...

    @property
    def inspects(self) -> bool:
        """True if it exists to inspect compiled programs, so that proved ones are inspected too."""
        ...

    @property
    def tiled(self) -> bool:
        """True if arrays are stored in tiles, so that small ones take more than their bytes."""
        ...

    @property
    def topology(self) -> Topology | None:
        """The slice that need not exist; None for devices that this process has."""
        ...

    @property
    def placement(self) -> jax.sharding.Sharding | None:
        """Sharding of the arguments of a program without a mesh; None for JAX's default device."""
        ...

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """Returns the mesh that represents ``spec`` here, usually ``spec`` itself; axes in ``held`` keep their size.

        Raises:
            FixedAxesError: those axes alone need more devices than there are.
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
        """Starts to compile if another process compiles; returns a function that returns the compiled program.

        That is a ``jax.stages.Compiled``, or an object with the same interface if the backend runs nothing.

        Raises:
            ValueError: it cannot compile.
        """
        ...
