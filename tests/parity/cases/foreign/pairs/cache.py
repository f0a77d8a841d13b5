"""Decoding one position at a time with a cache: custom programs, since Linen sets the cache's shape in `init`."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity

LINEN = linen.MultiHeadDotProductAttention(2, decode=True)


def linen_create(key):
    return LINEN.init(key, jnp.zeros((4, 6, 12)))


def linen_decode(state, batch):
    out, changed = LINEN.apply(state, batch["x"], mutable=["cache"])
    return {"values": {"out": out}, "state": changed}


def nnx_create(key):
    model = nnx.MultiHeadAttention(2, 12, decode=True, rngs=nnx.Rngs(key))
    model.init_cache((4, 6, 12))
    return model


def nnx_decode(model, batch):
    out = model(batch["x"])
    return {"values": {"out": out}, "state": nnx.state(model, nnx.Cache)}


PAIR = parity.twin_programs(
    "cache",
    linen=parity.CustomSide(
        create=linen_create, programs={"decode": linen_decode}, flavour=parity.Flavour.LINEN
    ),
    nnx=parity.CustomSide(create=nnx_create, programs={"decode": nnx_decode}, flavour=parity.Flavour.NNX),
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(4, 1, 12)).astype("float32")},
)
