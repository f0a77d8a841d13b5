"""Kernels and tables applied to activations, placed where the rules say.

B batch, T position, D embed, V vocab.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from models_nnx.sharding import Rules, constrain, out_sharding

__all__ = [
    "EMBEDDING_INIT",
    "einsum",
    "kernel_init",
    "lookup",
]

EMBEDDING_INIT = jax.nn.initializers.normal(stddev=0.02)


def kernel_init(equation: str) -> jax.nn.initializers.Initializer:
    """Returns a truncated-normal initializer scaled by the fan-in of an einsum.

    Args:
        equation: ``"BTD,DNH->BTNH"``; kernel letters missing from the output are the fan-in.
    """
    operands, output = equation.split("->")
    kernel = operands.split(",")[1]
    contracted = [axis for axis, letter in enumerate(kernel) if letter not in output]
    kept = [axis for axis, letter in enumerate(kernel) if letter in output]
    return jax.nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", contracted, kept)


def einsum(
    equation: str, x: jax.Array, kernel: jax.Array, *, out_axes: Sequence[str | None], rules: Rules
) -> jax.Array:
    """Contracts ``x`` with ``kernel`` and puts the result where ``rules`` say.

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


def lookup(
    table_VD: jax.Array, tokens_BT: jax.Array, *, out_axes: Sequence[str | None], rules: Rules
) -> jax.Array:
    """Returns the rows ``[B, T, D]`` of ``table_VD`` for ``tokens_BT``, put where ``rules`` say.

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
