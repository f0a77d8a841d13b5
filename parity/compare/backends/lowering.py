"""The backend that only lowers, for a TPU slice that need not exist: enough for a proof."""

import contextlib
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import jax

from parity.builds.meshes import MeshSpec
from parity.builds.topologies import Topology

__all__ = ["Lowering"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowering:
    """A backend that only lowers, for a TPU slice that need not exist; a proof needs no more.

    Args:
        topology: the slice.
    """

    topology: Topology
    executes: bool = dataclasses.field(default=False, init=False)
    inspects: bool = dataclasses.field(default=False, init=False)
    tiled: bool = dataclasses.field(default=True, init=False)
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
