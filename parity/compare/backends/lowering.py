"""The backend that only lowers, for a TPU slice that need not exist: enough for a proof."""

import dataclasses
from typing import NoReturn

import jax

from parity.builds.meshes import MeshSpec
from parity.builds.topologies import Topology
from parity.compare.backends.backend import Backend

__all__ = ["Lowering"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowering(Backend):
    """A backend that only lowers, for a TPU slice that need not exist; a proof needs no more.

    Args:
        topology: the slice.
    """

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
