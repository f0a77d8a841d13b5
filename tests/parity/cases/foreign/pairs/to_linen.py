"""The reverse direction: a new NNX block in a Linen model."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from flax.nnx import bridge

import parity


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(12, rngs=rngs)
        self.up, self.down = nnx.Linear(12, 20, rngs=rngs), nnx.Linear(20, 12, rngs=rngs)

    def __call__(self, x):
        y = self.up(self.norm(x))
        return x + self.down(jnp.tanh(y))


class LinenModel(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Dense(12, name="first")(x)
        return linen.Dense(3, name="last")(bridge.to_linen(NnxBlock, name="block")(x))


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(7, 12, rngs=rngs), nnx.Linear(12, 3, rngs=rngs)
        self.block = NnxBlock(rngs)

    def __call__(self, x):
        x = self.first(x)
        return self.last(self.block(x))


PAIR = parity.twins(
    "to_linen",
    linen=LinenModel,
    nnx=NnxModel,
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 7)).astype("float32")},
    loss=lambda out, batch: jnp.mean(out**2),
    bridged="the block is NNX already",
)
