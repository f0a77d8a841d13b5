"""Splitting a batch into two halves, and joining them.

B batch, T position, H half.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from models_nnx.shared.ops.accumulation import split_rows
from models_nnx.shared.sharding import Rules, ShardingError, constrain, resolve

__all__ = ["HALVES", "in_halves", "join_halves", "require_placed"]

HALVES = 2
AXES = ("activation_batch", "activation_length")


def in_halves(x: jax.Array, parts: int, rules: Rules) -> tuple[jax.Array, ...]:
    """Returns the parts of ``x [B, T, ...]``, placed by the rules: part p has rows p, p + parts, ...

    With these rows a sharded batch stays on its devices.

    Args:
        x: activations, segments or positions.
        parts: `HALVES`, or 1 for the whole batch.
        rules: rules for the parts.

    Raises:
        ShardingError: the rows do not divide.
    """
    axes = (*AXES, *[None] * (x.ndim - 2))
    if x.shape[0] % parts:
        raise ShardingError(
            f"got {x.shape[0]} rows, expected a multiple of {parts}: each layer takes the batch in halves; change the "
            "batch, or set layer_schedule to plain",
            "batch split",
        )
    x = constrain(x, axes, rules)
    if parts == 1:
        return (x,)
    x_HB = constrain(split_rows(x, parts), (None, *axes), rules)
    return tuple(jax.lax.index_in_dim(x_HB, part, keepdims=False) for part in range(parts))


def join_halves(parts: Sequence[jax.Array]) -> jax.Array:
    """Returns ``[B, T, ...]``: the rows of the parts in their order before `in_halves`."""
    if len(parts) == 1:
        return parts[0]
    x_BH = jnp.stack(parts, axis=1)
    return x_BH.reshape(-1, *x_BH.shape[2:])


def require_placed(x: jax.Array, axes: Sequence[str | None], rules: Rules, where: str) -> jax.Array:
    """Returns ``x`` if its type on an explicit mesh has the spec of the rules, also for axes of size one.

    Types on auto meshes have no spec and are not checked.

    Raises:
        ShardingError: it has another spec.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if AxisType.Explicit not in mesh.axis_types:
        return x
    expected, got = resolve(axes, x.shape, rules, mesh, where), jax.typeof(x).sharding.spec
    if got != expected:
        raise ShardingError(
            f"got {got} on the mesh {dict(mesh.shape)}, expected {expected}: what follows is written for that, and an "
            "axis of size one counts; restore the sharding where layers reshard inside",
            where,
            None,
            got,
        )
    return x
