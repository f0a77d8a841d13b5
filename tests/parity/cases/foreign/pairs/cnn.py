"""A convolutional network with batch statistics."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity


class LinenCnn(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        for width in (6, 7):
            x = linen.Conv(width, (3, 3), use_bias=False)(x)
            x = jax.nn.relu(linen.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        return linen.Dense(5)(linen.avg_pool(x, (2, 2), strides=(2, 2)).mean((1, 2)))


class Block(nnx.Module):
    def __init__(self, inner, outer, rngs):
        self.conv = nnx.Conv(inner, outer, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(outer, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        return jax.nn.relu(self.norm(self.conv(x)))


class NnxCnn(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(3, 6, rngs), Block(6, 7, rngs)])
        self.head = nnx.Linear(7, 5, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(nnx.avg_pool(x, (2, 2), strides=(2, 2)).mean((1, 2)))


def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(4, 8, 8, 3)).astype("float32")}


def loss(out, batch):
    return jnp.mean(out**2)


PAIR = parity.twins(
    "cnn", linen=LinenCnn, nnx=NnxCnn, inputs=inputs, loss=loss, linen_options={"train": True}
)
