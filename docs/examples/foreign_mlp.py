"""A foreign pair: a Linen and an NNX MLP, registered for parity in one file."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity


class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(5, name="down")(jax.nn.gelu(linen.Dense(24, name="up")(x)))


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(16, 24, rngs=rngs), nnx.Linear(24, 5, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.nn.gelu(self.up(x)))


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(8, size)).astype("float32") for name, size in (("x", 16), ("y", 5))}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


PAIR = parity.twins("mlp", linen=LinenMlp, nnx=NnxMlp, inputs=inputs, loss=loss)
