"""Placement of the leaves of a side on its mesh: specs, shards, bytes per device, and the rule behind them."""

import dataclasses
import math

import jax

from parity.builds.tree import Leaf, Role, as_data
from parity.compare.side import Side


def entries(spec: jax.sharding.PartitionSpec, rank: int) -> tuple[tuple[str, ...], ...]:
    """Returns the mesh axes of each dimension, one tuple per dimension; ``P('a')`` and ``P('a', None)`` agree."""
    parts = [part if isinstance(part, tuple) else (part,) for part in spec]
    named = [tuple(axis for axis in part if axis) for part in parts]
    return tuple(named + [()] * (rank - len(named)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placed:
    """One leaf on a mesh.

    Args:
        why: the rule behind each dimension, as text; empty if the build gives none.
    """

    leaf: Leaf
    spec: jax.sharding.PartitionSpec
    bytes_per_device: int
    why: str

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        """Mesh axes of each dimension."""
        return entries(self.spec, len(self.leaf.shape))


def placed(side: Side, path: str) -> Placed:
    """Returns the placement of a leaf of a side."""
    return side.memo.share(_placed, side, path, by=(path,))


def _placed(side: Side, path: str) -> Placed:
    leaf = side.build.leaves[path]
    spec, sizes, data = side.specs[path], dict(side.mesh.axes), as_data(side.build.abstract[path])
    shards = math.prod(sizes[axis] for part in entries(spec, len(leaf.shape)) for axis in part)
    return Placed(
        leaf=leaf,
        spec=spec,
        bytes_per_device=data.size * data.dtype.itemsize // shards,
        why=side.build.explain(leaf, side.device_mesh),
    )


def bytes_by_role(side: Side) -> dict[str, int]:
    """Returns the bytes on one device of each role of the state."""
    held: dict[str, int] = {}
    for path, leaf in side.build.leaves.items():
        held[leaf.role] = held.get(leaf.role, 0) + placed(side, path).bytes_per_device
    return held


def whole_share(side: Side) -> float:
    """Returns the share of a device's parameter bytes that belong to unsplit parameters, 0 to 1."""
    params = [placed(side, path) for path, leaf in side.build.leaves.items() if leaf.role is Role.PARAMS]
    held = sum(leaf.bytes_per_device for leaf in params)
    whole = sum(leaf.bytes_per_device for leaf in params if not any(leaf.axes))
    return whole / held if held else 0.0
