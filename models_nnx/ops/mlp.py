"""The hidden layer of a gated MLP. F hidden."""

import jax

from models_nnx.config import Activation

__all__ = [
    "gated_activation",
]


def gated_activation(gate_BTF: jax.Array, up_BTF: jax.Array, activation: Activation) -> jax.Array:
    """Returns ``activation(gate) * up``, the hidden layer of a gated MLP (Shazeer 2020)."""
    functions = {Activation.SILU: jax.nn.silu, Activation.GELU: jax.nn.gelu}
    return functions[activation](gate_BTF) * up_BTF
