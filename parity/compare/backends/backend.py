"""What a backend is: a place where programs are lowered, compiled and run."""

import contextlib
from collections.abc import Callable, Collection
from typing import Any, Protocol

import jax

from parity.builds.meshes import MeshSpec
from parity.builds.topologies import Topology

__all__ = ["AnyMesh", "Backend"]

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
    def tiled(self) -> bool:
        """Whether arrays lie in memory in tiles, so that small ones take more than their bytes."""
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
