"""Functions of both flavours behind a dense layer, pooling, and `Sequential`."""

import jax.numpy as jnp
from flax import linen, nnx
from jax import lax

from flax_layers.rows import D, H, Row, of

ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "standardize",
    "swish",
    "tanh",
]


class LinenBehind(linen.Module):
    function: object

    @linen.compact
    def __call__(self, x):
        return self.function(linen, linen.Dense(H)(x))


class NnxBehind(nnx.Module):
    def __init__(self, function, rngs):
        self.dense, self.function = nnx.Linear(D, H, rngs=rngs), function

    def __call__(self, x):
        return self.function(nnx, self.dense(x))


def behind(function, **row):
    return Row(linen=LinenBehind(function), nnx=of(NnxBehind, function), **row)


POOLS = {
    "avg_pool": lambda flax, x: flax.avg_pool(x, (2,), strides=(2,)),
    "avg_pool: same, padding not counted": lambda flax, x: flax.avg_pool(
        x, (2,), strides=(2,), padding="SAME", count_include_pad=False
    ),
    "max_pool": lambda flax, x: flax.max_pool(x, (2,), strides=(2,)),
    "max_pool: same": lambda flax, x: flax.max_pool(x, (3,), strides=(2,), padding="SAME"),
    "pool": lambda flax, x: flax.pool(x, 0.0, lax.add, (2,), (1,), "VALID"),
}

ROWS = {
    **{name: behind(lambda flax, x, name=name: getattr(flax, name)(x)) for name in ACTIVATIONS},
    **{name: behind(function) for name, function in POOLS.items()},
    "one_hot": behind(lambda flax, x: x[..., None] * flax.one_hot(jnp.argmax(x, -1), 4)[:, :, None]),
    "Sequential": Row(
        linen=linen.Sequential([linen.Dense(H), linen.relu, linen.LayerNorm(), linen.Dense(3)]),
        nnx=lambda rngs: nnx.Sequential(
            nnx.Linear(D, H, rngs=rngs), nnx.relu, nnx.LayerNorm(H, rngs=rngs), nnx.Linear(H, 3, rngs=rngs)
        ),
    ),
}
