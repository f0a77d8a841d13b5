"""Kernels and tables applied to activations, placed by the rules.

B batch, T position, D embed, V vocab.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.config import EmbeddingScale
from models_nnx.shared.sharding import Rules, constrain, out_sharding

__all__ = [
    "EMBEDDING_INIT",
    "add_bias",
    "bias_axes",
    "bias_shape",
    "einsum",
    "kernel_init",
    "lookup",
    "scale_embedding",
]

EMBEDDING_INIT = jax.nn.initializers.normal(stddev=0.02)


def _kept(equation: str) -> list[int]:
    """Returns the axes of an einsum's kernel that its output has."""
    operands, output = equation.split("->")
    return [axis for axis, letter in enumerate(operands.split(",")[1]) if letter in output]


def bias_shape(equation: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of the bias that goes with a kernel of ``shape``."""
    return tuple(shape[axis] for axis in _kept(equation))


def bias_axes(equation: str, axes: Sequence[str | None]) -> tuple[str | None, ...]:
    """Returns the logical axes of a bias; like a norm's scale it stays whole along ``embed``."""
    return tuple("norm" if axes[axis] == "embed" else axes[axis] for axis in _kept(equation))


def kernel_init(equation: str) -> jax.nn.initializers.Initializer:
    """Returns a truncated-normal initializer scaled by the fan-in of an einsum.

    Args:
        equation: ``"BTD,DNH->BTNH"``; kernel letters missing from the output are the fan-in.
    """
    kept = _kept(equation)
    rank = len(equation.split("->")[0].split(",")[1])
    contracted = [axis for axis in range(rank) if axis not in kept]
    return jax.nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", contracted, kept)


def einsum(
    equation: str, x: jax.Array, kernel: jax.Array, *, out_axes: Sequence[str | None], rules: Rules
) -> jax.Array:
    """Contracts ``x`` with ``kernel`` and places the result by ``rules``.

    Args:
        equation: one letter per dimension, ``"BTD,DF->BTF"``.
        x: the activation.
        kernel: in the dtype of ``x``.
        out_axes: logical axes of the result.
        rules: ordered logical axis rules.

    Raises:
        ShardingError: the rules do not fit the result.
    """
    sizes = dict(zip(equation.split("->")[0].replace(",", ""), (*x.shape, *kernel.shape), strict=True))
    shape = tuple(sizes[letter] for letter in equation.split("->")[1])
    out = jnp.einsum(equation, x, kernel, out_sharding=out_sharding(out_axes, shape, rules))
    return constrain(out, out_axes, rules)


def add_bias(x: jax.Array, bias: jax.Array, axes: Sequence[str | None], rules: Rules) -> jax.Array:
    """Returns ``x + bias`` in the dtype of ``x``.

    Args:
        x: the activation.
        bias: has the last axes of ``x``; it is resharded like them, because weights may be sharded differently.
        axes: logical axes of ``x``.
        rules: ordered logical axis rules.
    """
    chex.assert_shape(bias, x.shape[x.ndim - bias.ndim :])
    bias = constrain(bias.astype(x.dtype), axes[-bias.ndim :], rules)
    return x + bias.reshape((1,) * (x.ndim - bias.ndim) + bias.shape)


def lookup(
    table_VD: jax.Array, tokens_BT: jax.Array, *, out_axes: Sequence[str | None], rules: Rules
) -> jax.Array:
    """Returns the rows ``[B, T, D]`` of ``table_VD`` for ``tokens_BT``, placed by ``rules``.

    Args:
        table_VD: embeddings.
        tokens_BT: int32 in [0, V).
        out_axes: logical axes of the result.
        rules: ordered logical axis rules.

    Raises:
        ShardingError: the rules do not fit the result.
    """
    shape = (*tokens_BT.shape, table_VD.shape[-1])
    spec = out_sharding(out_axes, shape, rules)
    return constrain(table_VD.at[tokens_BT].get(out_sharding=spec), out_axes, rules)


def scale_embedding(x_BTD: jax.Array, scale: EmbeddingScale) -> jax.Array:
    """Returns embedded tokens, multiplied by the root of D (rounded to their dtype) if ``scale`` is ``root``."""
    if scale is EmbeddingScale.NONE:
        return x_BTD
    return x_BTD * jnp.asarray(x_BTD.shape[-1] ** 0.5, x_BTD.dtype)
