"""Scanned layers under remat, with dropout that keeps streams in the NNX model."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity

LAYERS = 3


class LinenLayer(linen.Module):
    @linen.compact
    def __call__(self, x, _):
        x = x + jnp.tanh(linen.Dense(12)(x))
        return linen.Dropout(0.1, deterministic=True)(x), None


class LinenStack(linen.Module):
    @linen.compact
    def __call__(self, x):
        layer = linen.remat(LinenLayer, prevent_cse=False)
        split = {"params": True, "dropout": True}
        return linen.scan(layer, variable_axes={"params": 0}, split_rngs=split, length=LAYERS)()(x, None)[0]


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(12, 12, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, deterministic=True, rngs=rngs)

    def __call__(self, x):
        x = x + jnp.tanh(self.dense(x))
        return self.dropout(x)


class NnxStack(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.split_rngs(splits=LAYERS)(nnx.vmap(NnxLayer))(rngs)

    def __call__(self, x):
        body = nnx.remat(lambda x, layer: layer(x), prevent_cse=False)
        return nnx.scan(body, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)


def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")}


PAIR = parity.twins(
    "scan", linen=LinenStack, nnx=NnxStack, inputs=inputs, loss=lambda out, _: jnp.mean(out**2)
)
