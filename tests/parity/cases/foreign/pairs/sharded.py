"""Logical axes on a mesh."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity

RULES = (("batch", "data"), ("embed", None), ("mlp", "tensor"))


def linen_init(*axes):
    return linen.with_logical_partitioning(linen.initializers.lecun_normal(), axes)


def nnx_init(*axes):
    return nnx.with_metadata(nnx.initializers.lecun_normal(), out_sharding=axes)


class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(linen.Dense(16, kernel_init=linen_init("embed", "mlp"), name="up")(x))
        return linen.Dense(12, kernel_init=linen_init("mlp", "embed"), name="down")(x)


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(12, 16, kernel_init=nnx_init("embed", "mlp"), rngs=rngs)
        self.down = nnx.Linear(16, 12, kernel_init=nnx_init("mlp", "embed"), rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


PAIR = parity.twins(
    "sharded",
    linen=LinenMlp,
    nnx=NnxMlp,
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")},
    loss=lambda out, batch: jnp.mean(out**2),
    axis_rules=RULES,
    meshes=("single", "data2.tensor4-auto", "data8.tensor1-auto"),
)
