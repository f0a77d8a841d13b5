"""An encoder with Flax's attention and a padding mask."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity


class LinenEncoder(linen.Module):
    @linen.compact
    def __call__(self, ids):
        x = linen.Embed(17, 12, name="embed")(ids)
        mask = linen.make_attention_mask(ids > 0, ids > 0)
        x = x + linen.MultiHeadDotProductAttention(2, name="attention")(
            linen.LayerNorm(name="norm")(x), mask=mask
        )
        return x + linen.Dense(12, name="out")(linen.gelu(linen.Dense(20, name="up")(x)))


class NnxEncoder(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(17, 12, rngs=rngs)
        self.norm = nnx.LayerNorm(12, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 12, decode=False, rngs=rngs)
        self.up, self.out = nnx.Linear(12, 20, rngs=rngs), nnx.Linear(20, 12, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids)
        mask = nnx.make_attention_mask(ids > 0, ids > 0)
        x = x + self.attention(self.norm(x), mask=mask)
        return x + self.out(nnx.gelu(self.up(x)))


def inputs(seed):
    ids = np.random.default_rng(seed).integers(0, 17, (4, 6))
    ids[:, 0] = 1
    return {"ids": ids}


def loss(out, batch):
    return jnp.mean(out**2)


PAIR = parity.twins(
    "encoder", linen=LinenEncoder, nnx=NnxEncoder, inputs=inputs, loss=loss, arguments=("ids",)
)
