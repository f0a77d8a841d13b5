"""The hidden layer of a gated MLP. F hidden."""

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.config import Activation

__all__ = [
    "clamped_swiglu",
    "gated_activation",
]


def gated_activation(gate_BTF: jax.Array, up_BTF: jax.Array, activation: Activation) -> jax.Array:
    """Returns ``activation(gate) * up``, the hidden layer of a gated MLP (Shazeer 2020)."""
    chex.assert_equal_shape([gate_BTF, up_BTF])
    if activation is Activation.CLAMPED_SWIGLU:
        return clamped_swiglu(gate_BTF, up_BTF)
    functions = {Activation.SILU: jax.nn.silu, Activation.GELU: jax.nn.gelu}
    return functions[activation](gate_BTF) * up_BTF


def clamped_swiglu(
    gate_BTF: jax.Array, up_BTF: jax.Array, alpha: float = 1.702, limit: float = 7.0
) -> jax.Array:
    """Returns ``gate * sigmoid(alpha * gate) * (up + 1)`` with both sides clamped.

    Args:
        gate_BTF: clamped from above.
        up_BTF: clamped from both sides.
        alpha: steepness of the sigmoid.
        limit: limit of the clamps.

    Source: the gpt-oss model card and reference code, 2025.
    """
    gate_BTF = jnp.minimum(gate_BTF, limit)
    up_BTF = jnp.clip(up_BTF, -limit, limit)
    return gate_BTF * jax.nn.sigmoid(alpha * gate_BTF) * (up_BTF + 1)
