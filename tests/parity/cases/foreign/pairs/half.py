"""Half migrated: an NNX model around a block that is still Linen."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from flax.nnx import bridge

import parity


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x):
        y = linen.LayerNorm()(x)
        return x + linen.Dense(12)(jnp.tanh(linen.Dense(20)(y)))


class LinenModel(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(LinenBlock()(linen.Dense(12)(x)))


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(7, 12, rngs=rngs)
        self.block = bridge.ToNNX(LinenBlock(), rngs=rngs).lazy_init(jnp.zeros((8, 12)))
        self.last = nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x):
        x = self.first(x)
        return self.last(self.block(x))


PAIR = parity.twins(
    "half",
    linen=LinenModel,
    nnx=NnxModel,
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 7)).astype("float32")},
    loss=lambda out, batch: jnp.mean(out**2),
    bridged="the block is not migrated yet",
)
