"""An MLP with dropout."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity


class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        x = linen.LayerNorm()(linen.Dense(16)(x))
        x = linen.Dropout(0.2, deterministic=not train)(jnp.tanh(x))
        return linen.Dense(3)(x)


class NnxMlp(nnx.Module):
    def __init__(self, *, rngs):
        self.up, self.down = nnx.Linear(12, 16, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
        self.norm, self.dropout = nnx.LayerNorm(16, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x, deterministic):
        x = self.norm(self.up(x))
        x = self.dropout(jnp.tanh(x), deterministic=deterministic)
        return self.down(x)


PAIR = parity.twins(
    "mlp",
    linen=LinenMlp,
    nnx=NnxMlp,
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")},
    loss=lambda out, batch: jnp.mean(out**2),
    linen_options={"train": False},
    nnx_options={"deterministic": True},
)
