"""Bytes per device, ZeRO-1, the guard against unsharded parameters, names of stacked axes. Free of Flax."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import PartitionSpec

from models_nnx.shared.mesh import AnyMesh, ShardingError, as_axes, as_entry, canonical_spec, near_matches

__all__ = [
    "WEIGHT_AXES",
    "PlacedLeaf",
    "Unsharded",
    "Zero1",
    "bytes_per_device",
    "check_sharded",
    "insert_axis",
    "remove_axis",
    "unsharded_share",
    "zero1_spec",
]

WEIGHT_AXES = ("stage", "fsdp", "fsdp_transpose", "tensor", "expert")


def _shards(entry: Any, mesh: AnyMesh) -> int:
    return math.prod(mesh.shape[axis] for axis in as_axes(entry))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Zero1:
    """A ZeRO-1 placement: the spec, the dimension that took the axis, and one line to report.

    Attributes:
        spec: the spec to use, canonical.
        dim: the dimension that is additionally sharded, None if the spec did not change.
        reason: the change, or the reason for none.
    """

    spec: PartitionSpec
    dim: int | None
    reason: str


def zero1_spec(spec: PartitionSpec, shape: Sequence[int], mesh: AnyMesh, axis: str = "data") -> Zero1:
    """Returns the placement of optimizer state sharded over ``axis`` too, on the first dimension that it divides.

    Args:
        spec: spec of the parameter.
        shape: its shape.
        mesh: the mesh.
        axis: the mesh axis to add, after those that the dimension already has.

    Raises:
        ShardingError: as `canonical_spec`.
    """
    old = canonical_spec(spec, len(shape), mesh)
    count = mesh.shape.get(axis, 1)
    if count == 1:
        return Zero1(spec=old, dim=None, reason=f"unchanged: mesh axis {axis!r} is absent or of size 1")
    if any(axis in as_axes(entry) for entry in old):
        return Zero1(spec=old, dim=None, reason=f"unchanged: {old} already uses {axis!r}")
    for dim, (size, entry) in enumerate(zip(shape, old, strict=True)):
        if size and size % (count * _shards(entry, mesh)) == 0:
            new = PartitionSpec(*old[:dim], as_entry((*as_axes(entry), axis)), *old[dim + 1 :])
            return Zero1(spec=new, dim=dim, reason=f"dimension {dim} of {tuple(shape)}: {old} to {new}")
    return Zero1(
        spec=old,
        dim=None,
        reason=f"unchanged: no dimension of {tuple(shape)} under {old} divides by {axis}={count}",
    )


def bytes_per_device(shape: Sequence[int], dtype: Any, spec: PartitionSpec, mesh: AnyMesh) -> int:
    """Returns the bytes of the largest shard of an array (a dimension that does not divide is rounded up).

    Args:
        shape: global shape.
        dtype: any dtype, including those of PRNG keys.
        spec: its spec.
        mesh: the mesh.

    Raises:
        ShardingError: as `canonical_spec`.
    """
    full = canonical_spec(spec, len(shape), mesh)
    local = [-(-size // _shards(entry, mesh)) for size, entry in zip(shape, full, strict=True)]
    width = getattr(dtype, "itemsize", None)
    return math.prod(local) * (width if isinstance(width, int) else np.dtype(dtype).itemsize)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacedLeaf:
    """One array's shape, dtype and spec."""

    shape: tuple[int, ...]
    dtype: Any
    spec: PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unsharded:
    """The part of a state that no mesh axis for weights divides.

    Attributes:
        share: bytes of such leaves over bytes of all leaves, 0 to 1.
        leaves: their paths and bytes, largest first.
    """

    share: float
    leaves: tuple[tuple[str, int], ...]


def unsharded_share(leaves: Mapping[str, PlacedLeaf], mesh: AnyMesh) -> Unsharded:
    """Measures the share of a state that is unsharded although the mesh has axes to shard it.

    The share is 0 on a mesh without an axis of `WEIGHT_AXES` above size one.

    Args:
        leaves: arrays by path.
        mesh: the mesh.

    Raises:
        ShardingError: if there are no leaves, or as `canonical_spec`.
    """
    if not leaves:
        raise ShardingError("unsharded_share: got no leaves, expected the parameters; check the filter")
    if math.prod(mesh.shape.get(axis, 1) for axis in WEIGHT_AXES) == 1:
        return Unsharded(share=0.0, leaves=())
    whole: list[tuple[str, int]] = []
    total = 0
    for path, leaf in leaves.items():
        size = bytes_per_device(leaf.shape, leaf.dtype, PartitionSpec(), mesh)
        total += size
        used = itertools.chain.from_iterable(map(as_axes, canonical_spec(leaf.spec, len(leaf.shape), mesh)))
        if not set(used) & set(WEIGHT_AXES):
            whole.append((path, size))
    whole.sort(key=lambda item: (-item[1], item[0]))
    return Unsharded(share=sum(size for _, size in whole) / max(total, 1), leaves=tuple(whole))


def check_sharded(leaves: Mapping[str, PlacedLeaf], mesh: AnyMesh, tolerance: float = 0.02) -> Unsharded:
    """Returns `unsharded_share`; raises if it is above ``tolerance``.

    Raises:
        ShardingError: naming the largest leaves.
    """
    result = unsharded_share(leaves, mesh)
    if result.share > tolerance:
        worst = ", ".join(f"{path} ({size} bytes)" for path, size in result.leaves[:5])
        raise ShardingError(
            f"check_sharded: got {result.share:.1%} of the bytes unsharded on {dict(mesh.shape)}, expected "
            f"at most {tolerance:.1%}; largest of {len(result.leaves)} leaves: {worst}; check names and rules"
        )
    return result


def insert_axis(logical_axes: Sequence[str | None], position: int, name: str) -> tuple[str | None, ...]:
    """Returns the logical axes after a scan or vmap stacks an axis at ``position``.

    Args:
        logical_axes: the names of one layer's array.
        position: index of the new axis in the result; negative counts from its end.
        name: name of the new axis, such as ``layers``.

    Raises:
        ShardingError: if the name is taken or empty, or the position is outside the result.
    """
    axes, rank = list(logical_axes), len(logical_axes) + 1
    if not name or name in axes:
        raise ShardingError(
            f"insert_axis: got the name {name!r} for {tuple(axes)}, expected a new one; give each stack its own name"
        )
    if not -rank <= position < rank:
        raise ShardingError(
            f"insert_axis: got position {position} for {tuple(axes)}, expected {-rank} to {rank - 1}; "
            "check the axis number of the scan"
        )
    axes.insert(position % rank, name)
    return tuple(axes)


def remove_axis(
    logical_axes: Sequence[str | None], name: str, position: int | None = None
) -> tuple[str | None, ...]:
    """Returns the logical axes without a stacked axis; the inverse of `insert_axis`.

    Args:
        logical_axes: the names of the stacked array.
        name: name of the axis to remove.
        position: if given, the required index of the name; negative counts from the end.

    Raises:
        ShardingError: if the name is missing, or at another index.
    """
    axes = list(logical_axes)
    if name not in axes:
        known = [axis for axis in axes if axis is not None]
        raise ShardingError(
            f"remove_axis: got {name!r}, expected a name of {tuple(axes)}; {near_matches(name, known)}"
        )
    found = axes.index(name)
    if position is not None and position not in (found, found - len(axes)):
        raise ShardingError(
            f"remove_axis: got position {position} for {name!r}, expected {found} as in {tuple(axes)}; "
            "remove the axis that was inserted there"
        )
    return tuple(axes[:found] + axes[found + 1 :])
