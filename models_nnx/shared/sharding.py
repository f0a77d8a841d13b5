"""Placement of arrays on a mesh: logical axis rules, constraints, ZeRO-1 and the unsharded-share guard.

Free of Flax, shared by both twins. A *rule table* is an ordered tuple of (logical name, mesh axis or axes or
None) in which a name may occur several times. The rule of a dimension depends on the names of the mesh's axes, never
on their sizes: an axis of size one takes part in the choice and is then left out of the spec.
Specs have one entry per dimension (trailing ``None`` kept): ``None``, an axis, or a tuple of several.
"""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from models_nnx.shared.mesh import (
    DEFAULT_RULES,
    MESH_AXES,
    AnyMesh,
    Rule,
    Rules,
    ShardingError,
    ShardMode,
    as_axes,
    as_entry,
    canonical_spec,
    near_matches,
)
from models_nnx.shared.placement import (
    WEIGHT_AXES,
    PlacedLeaf,
    Unsharded,
    Zero1,
    bytes_per_device,
    check_sharded,
    insert_axis,
    remove_axis,
    unsharded_share,
    zero1_spec,
)

__all__ = [
    "DEFAULT_RULES",
    "MESH_AXES",
    "WEIGHT_AXES",
    "AnyMesh",
    "Binding",
    "PlacedLeaf",
    "Rule",
    "Rules",
    "ShardMode",
    "ShardingError",
    "Unsharded",
    "Zero1",
    "bytes_per_device",
    "canonical_spec",
    "check_sharded",
    "constrain",
    "constrain_moment",
    "explain",
    "insert_axis",
    "named_sharding",
    "out_sharding",
    "place",
    "remove_axis",
    "resolve",
    "spec_here",
    "state_spec",
    "unsharded_share",
    "zero1_spec",
    "zeros",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binding:
    """Mesh axes of one dimension of a tensor, and the reason for them.

    Attributes:
        name: the logical name, None for a dimension without one.
        size: the size of the dimension.
        mesh_axes: the mesh axes in the spec, those of size one left out.
        shards: the product of their sizes.
        rule_index: position in the table of the rule that won, or None.
        rule: that rule, or None.
        reason: one line for a finding: the rule, or the reason for replication.
    """

    name: str | None
    size: int
    mesh_axes: tuple[str, ...] = ()
    shards: int = 1
    rule_index: int | None = None
    rule: Rule | None = None
    reason: str = "no logical name: replicated"


def _check_rule(index: int, rule: Rule, mesh_names: Collection[str]) -> tuple[str, ...]:
    axes = as_axes(rule[1])
    if len(set(axes)) < len(axes):
        raise ShardingError(f"rule {index} {rule}: got a mesh axis twice, expected each once; drop one")
    for axis in axes:
        if axis not in MESH_AXES and axis not in mesh_names:
            known = tuple(dict.fromkeys((*MESH_AXES, *mesh_names)))
            raise ShardingError(
                f"rule {index} {rule}: got {axis!r}, expected a known mesh axis; {near_matches(axis, known)}"
            )
    return axes


def _check_axes(logical_axes: Sequence[str | None], ndim: int, where: str) -> None:
    if len(logical_axes) != ndim:
        raise ShardingError(
            f"got {len(logical_axes)} logical axes {tuple(logical_axes)} for {ndim} dimensions, expected one "
            "each; name every dimension, None for one that stays whole",
            where,
        )
    names = [name for name in logical_axes if name is not None]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ShardingError(
            f"got {twice} more than once in {tuple(logical_axes)}, expected distinct names; rename one",
            where,
        )


def _explain(
    logical_axes: Sequence[str | None], shape: Sequence[int], rules: Rules, sizes: Mapping[str, int]
) -> tuple[Binding, ...]:
    return _bound(tuple(logical_axes), tuple(shape), tuple(rules), tuple(sizes.items()))


@functools.lru_cache(
    maxsize=4_096
)  # tracing repeats calls for every layer, and a table has about a hundred rules
def _bound(
    names: tuple[str | None, ...], shape: tuple[int, ...], rules: Rules, mesh: tuple[tuple[str, int], ...]
) -> tuple[Binding, ...]:
    sizes = dict(mesh)
    won: dict[int, Binding] = {}
    lost: dict[int, list[str]] = {}
    owner: dict[str, int] = {}
    for index, rule in enumerate(rules):
        axes = _check_rule(index, rule, sizes)
        dim = names.index(rule[0]) if rule[0] in names else None
        if dim is None or dim in won:
            continue
        missing = [axis for axis in axes if axis not in sizes]
        taken = [f"{axis!r} is bound to dimension {owner[axis]}" for axis in axes if axis in owner]
        if missing or taken:
            cause = f"mesh has no axis {', '.join(map(repr, missing))}" if missing else ", ".join(taken)
            lost.setdefault(dim, []).append(f"rule {index} {rule}: {cause}")
            continue
        owner.update(dict.fromkeys(axes, dim))
        kept = tuple(axis for axis in axes if sizes[axis] > 1)
        won[dim] = Binding(
            name=names[dim],
            size=shape[dim],
            mesh_axes=kept,
            shards=math.prod(sizes[axis] for axis in kept),
            rule_index=index,
            rule=rule,
            reason=f"rule {index} {rule}"
            + ("" if kept == axes else f", without {set(axes) - set(kept)} of size 1"),
        )

    def replicated(dim: int) -> Binding:
        if names[dim] is None:
            return Binding(name=None, size=shape[dim])
        reason = "; ".join(lost.get(dim, [f"no rule names {names[dim]!r}"]))
        return Binding(name=names[dim], size=shape[dim], reason=f"{reason}: replicated")

    return tuple(won.get(dim) or replicated(dim) for dim in range(len(names)))


def explain(
    logical_axes: Sequence[str | None], shape: Sequence[int], rules: Rules, mesh: AnyMesh
) -> tuple[Binding, ...]:
    """Returns for each dimension the rule that produced its mesh axes, or why none did; divisibility is not checked.

    Raises:
        ShardingError: if names and dimensions do not match up or a rule is malformed.
    """
    _check_axes(logical_axes, len(shape), "explain")
    return _explain(logical_axes, shape, rules, mesh.shape)


def _resolve(
    logical_axes: Sequence[str | None],
    shape: Sequence[int],
    rules: Rules,
    sizes: Mapping[str, int],
    where: str,
) -> PartitionSpec:
    _check_axes(logical_axes, len(shape), where)
    bindings = _explain(logical_axes, shape, rules, sizes)
    entries = [as_entry(binding.mesh_axes) for binding in bindings]
    spec = PartitionSpec(*entries)
    for dim, binding in enumerate(bindings):
        if binding.size % binding.shards:
            fitting = PartitionSpec(*entries[:dim], None, *entries[dim + 1 :])
            axes = ", ".join(f"{axis}={sizes[axis]}" for axis in binding.mesh_axes)
            above = -(-binding.size // binding.shards) * binding.shards
            raise ShardingError(
                f"dimension {dim} ({binding.name!r}) of shape {tuple(shape)} has size {binding.size}, "
                f"expected a multiple of {binding.shards} for {axes}; the rules give {spec} "
                f"({binding.reason}), only {fitting} fits; pad it to {above}, or change the mesh or the rule",
                where,
                dim,
                spec,
                fitting,
            )
    return spec


def resolve(
    logical_axes: Sequence[str | None],
    shape: Sequence[int],
    rules: Rules,
    mesh: AnyMesh,
    where: str = "",
) -> PartitionSpec:
    """Returns the spec of logical names; Flax Linen's ``logical_to_mesh_axes`` is the reference.

    The rules are walked in order. The first one for a dimension whose mesh axes all exist and are not bound
    to another dimension wins; a name without one is replicated. Differences to the reference: a rule with an
    axis that the mesh lacks is skipped, axes of size one are left out of the result, and a size that its mesh
    axes do not divide is an error.

    Args:
        logical_axes: a name per dimension, None for one that stays whole.
        shape: the global shape.
        rules: the ordered table.
        mesh: the mesh, concrete or abstract.
        where: name of the tensor in an error, such as its path.

    Returns:
        A spec with one entry per dimension.

    Raises:
        ShardingError: if a dimension is not divisible by its mesh axes, names and dimensions do not match up,
            a name is repeated, or a rule is malformed.
    """
    return _resolve(logical_axes, shape, rules, mesh.shape, where)


def named_sharding(
    logical_axes: Sequence[str | None],
    shape: Sequence[int],
    rules: Rules,
    mesh: Mesh,
    where: str = "",
) -> NamedSharding:
    """Returns the result of `resolve` as a sharding on ``mesh``.

    Raises:
        ShardingError: as `resolve`.
    """
    return NamedSharding(mesh, resolve(logical_axes, shape, rules, mesh, where))


def _mode(mesh: AbstractMesh, where: str) -> ShardMode | None:
    """Returns the mode of the axes of a mesh that are not manual; None if there are none."""
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    free = set(types.values()) - {AxisType.Manual}
    if len(free) > 1:
        raise ShardingError(
            f"got axis types {types}, expected one mode; give all axes of the mesh one type", where
        )
    if not free:
        return None
    return ShardMode.EXPLICIT if AxisType.Explicit in free else ShardMode.AUTO


def _ambient(
    logical_axes: Sequence[str | None], shape: Sequence[int], rules: Rules, where: str
) -> tuple[ShardMode, PartitionSpec] | None:
    """Returns mode and spec under the ambient mesh; None if nothing is left to constrain."""
    mesh = jax.sharding.get_abstract_mesh()
    mode = _mode(mesh, where)
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    # A manual axis is already applied to the local shape, so it counts as an axis of size one.
    sizes = {axis: 1 if types[axis] == AxisType.Manual else size for axis, size in mesh.shape.items()}
    spec = _resolve(logical_axes, shape, rules, sizes, where)
    return None if mode is None else (mode, spec)


def constrain(x: jax.Array, logical_axes: Sequence[str | None], rules: Rules) -> jax.Array:
    """Places an activation as the rules require; models constrain activations only with this function.

    The mesh is the ambient one (``jax.set_mesh``) and its axis types determine the mode: a sharding constraint
    under auto, ``jax.sharding.reshard`` under explicit. Manual axes (inside ``shard_map``) are left out.
    Without an ambient mesh, or with all its axes manual, ``x`` is returned unchanged.

    Args:
        x: the activation, any dtype.
        logical_axes: a name per dimension, None for one that stays whole.
        rules: the ordered table.

    Raises:
        ShardingError: as `resolve`; without a mesh too if names and dimensions do not match up.
    """
    target = _ambient(logical_axes, x.shape, rules, "constrain")
    return x if target is None else _put(x, *target)


def constrain_moment(x: jax.Array, logical_axes: Sequence[str | None], rules: Rules) -> jax.Array:
    """Places a gradient or parameter like its ZeRO-1 moments; see `constrain` and `zero1_spec`.

    Raises:
        ShardingError: as `resolve`.
    """
    target = _ambient(logical_axes, x.shape, rules, "constrain_moment")
    if target is None:
        return x
    mode, spec = target
    return _put(x, mode, zero1_spec(spec, x.shape, jax.sharding.get_abstract_mesh()).spec)


def state_spec(
    logical_axes: Sequence[str | None] | None,
    shape: Sequence[int],
    rules: Rules,
    mesh: AnyMesh,
    *,
    zero1: bool,
    where: str = "",
) -> PartitionSpec:
    """Returns the spec of a leaf of the train state, sharded over ``data`` as well if ``zero1`` is set.

    Args:
        logical_axes: its names; None for a counter or key, which is replicated.
        shape: its shape.
        rules: the ordered table.
        mesh: the mesh.
        zero1: True for optimizer state sharded by ZeRO-1.
        where: name of the leaf in an error.

    Raises:
        ShardingError: as `resolve`.
    """
    if logical_axes is None:
        return PartitionSpec(*[None] * len(shape))
    spec = resolve(logical_axes, shape, rules, mesh, where)
    return zero1_spec(spec, shape, mesh).spec if zero1 else spec


def place(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    """Places an array by a given spec on the ambient mesh; `constrain` resolves the spec from names."""
    mode = _mode(jax.sharding.get_abstract_mesh(), "place")
    return x if mode is None else _put(x, mode, spec)


def zeros(shape: Sequence[int], dtype: jax.typing.DTypeLike, spec: PartitionSpec) -> jax.Array:
    """Returns zeros placed by a given spec on the ambient mesh."""
    explicit = _mode(jax.sharding.get_abstract_mesh(), "zeros") is ShardMode.EXPLICIT
    return place(jnp.zeros(shape, dtype, out_sharding=spec if explicit else None), spec)


def _put(x: jax.Array, mode: ShardMode, spec: PartitionSpec) -> jax.Array:
    if mode is ShardMode.EXPLICIT:
        return jax.sharding.reshard(x, spec)
    return jax.lax.with_sharding_constraint(x, spec)


def out_sharding(
    logical_axes: Sequence[str | None], shape: Sequence[int], rules: Rules
) -> PartitionSpec | None:
    """Returns ``out_sharding=`` for einsum, dot, gather and reshape: a spec under explicit, else None.

    Raises:
        ShardingError: as `resolve`.
    """
    target = _ambient(logical_axes, shape, rules, "out_sharding")
    return target[1] if target is not None and target[0] is ShardMode.EXPLICIT else None


def spec_here(logical_axes: Sequence[str | None], shape: Sequence[int], rules: Rules) -> PartitionSpec | None:
    """Returns the spec for ``shard_map`` under the ambient mesh of an argument placed by `constrain`.

    None without an ambient mesh, or with all its axes manual.

    Raises:
        ShardingError: as `resolve`.
    """
    target = _ambient(logical_axes, shape, rules, "spec_here")
    return None if target is None else target[1]
