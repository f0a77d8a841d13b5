"""Self-attention and cross-attention, masks, decoding with a cache."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from flax_layers.differences import ATTENTION, ATTENTION_FUNCTION, STORED_ATTENTION
from flax_layers.rows import BFLOAT16, B, D, Row, T, normal, of, variants

S = 7  # source positions
ATTENTION_LAYERS = of(linen.MultiHeadDotProductAttention, 2), of(nnx.MultiHeadAttention, 2, D, decode=False)
OPTIONS = {
    **BFLOAT16,
    "no bias": {"use_bias": False},
    "sizes": {"qkv_features": 8, "out_features": 6},
    "normalised": {"normalize_qk": True},
    "deterministic dropout": {"dropout_rate": 0.5, "deterministic": True},
}
QKV = {name: normal(B, size, 2, 3) for name, size in (("q", T), ("k", S), ("v", S))}


def as_linen(query, key, value, *, mask=None, dtype=None, **_):
    """Computes attention like Linen: the workaround for the difference ATTENTION."""
    query, key, value = (array if dtype is None else array.astype(dtype) for array in (query, key, value))
    weights = nnx.nn.attention.dot_product_attention_weights(query, key, mask=mask, dtype=dtype)
    return jnp.einsum("...hqk,...khd->...qhd", weights, value)


def mask(rng):
    return np.tril(np.ones((B, 1, T, T), bool)) & (rng.random((B, 1, 1, T)) > 0.3) | np.eye(T, dtype=bool)


def cross_mask(rng):
    kept = rng.random((B, 2, T, S)) > 0.4
    kept[..., 0] = True
    return kept


def tokens(*shape):
    return lambda rng: rng.integers(0, 3, shape)


class LinenDecode(linen.Module):
    """Is initialised with a whole sequence and then takes one position at a time, as Linen's cache requires."""

    @linen.compact
    def __call__(self, x):
        attention = linen.MultiHeadDotProductAttention(2, decode=True)
        return attention(x if self.is_initializing() else x[:, :1])


class NnxDecode(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, D, decode=True, rngs=rngs)
        self.attention.init_cache((B, T, D))

    def __call__(self, x):
        return self.attention(x[:, :1])


class LinenMasks(linen.Module):
    masks: object

    @linen.compact
    def __call__(self, x, ids):
        return linen.MultiHeadDotProductAttention(2)(x, mask=self.masks(linen, ids))


class NnxMasks(nnx.Module):
    def __init__(self, masks, rngs):
        self.attention, self.masks = nnx.MultiHeadAttention(2, D, decode=False, rngs=rngs), masks

    def __call__(self, x, ids):
        return self.attention(x, mask=self.masks(nnx, ids))


MASKS = {
    "make_causal_mask": lambda flax, ids: flax.make_causal_mask(ids),
    "make_attention_mask": lambda flax, ids: flax.make_attention_mask(ids > 0, ids < 3),
    "combine_masks": lambda flax, ids: flax.combine_masks(
        flax.make_causal_mask(ids), flax.make_attention_mask(ids > 0, ids < 3), None
    ),
}


class LinenFunction(linen.Module):
    attend: object

    def __call__(self, q, k, v):
        return self.attend(linen, q, k, v)


class NnxFunction(nnx.Module):
    def __init__(self, attend):
        self.attend = attend

    def __call__(self, q, k, v):
        return self.attend(nnx, q, k, v)


FUNCTION = {
    "": lambda flax, q, k, v: flax.dot_product_attention(q, k, v),
    "bfloat16": lambda flax, q, k, v: flax.dot_product_attention(q, k, v, dtype=jnp.bfloat16),
    "mask": lambda flax, q, k, v: flax.dot_product_attention(
        q, k, v, mask=jnp.arange(S)[None, None, None] > 2
    ),
    "bias": lambda flax, q, k, v: flax.dot_product_attention(
        q, k, v, bias=jnp.ones((1, 1, T, S)).at[..., 2].set(2.0)
    ),
}

ROWS = {
    **variants(
        "MultiHeadDotProductAttention",
        ATTENTION_LAYERS,
        OPTIONS,
        {"bfloat16": ATTENTION, "all bfloat16": STORED_ATTENTION},
    ),
    "MultiHeadAttention": Row(linen=linen.MultiHeadAttention(2), nnx=ATTENTION_LAYERS[1]),
    "MultiHeadAttention: masked": Row(
        linen=ATTENTION_LAYERS[0](),
        nnx=ATTENTION_LAYERS[1],
        inputs={"x": normal(B, T, D), "mask": mask},
        options={"arguments": ("x",), "keywords": ("mask",)},
    ),
    "MultiHeadAttention: cross": Row(
        linen=ATTENTION_LAYERS[0](),
        nnx=ATTENTION_LAYERS[1],
        inputs={"x": normal(B, T, D), "k": normal(B, S, D), "v": normal(B, S, D), "mask": cross_mask},
        options={"arguments": ("x", "k", "v"), "keywords": ("mask",)},
    ),
    **{
        f"MultiHeadAttention: as Linen, {option}": Row(
            linen=linen.MultiHeadAttention(2, **keywords),
            nnx=of(nnx.MultiHeadAttention, 2, D, decode=False, attention_fn=as_linen, **keywords),
        )
        for option, keywords in (("float32", {}), ("bfloat16", {"dtype": jnp.bfloat16}))
    },
    "MultiHeadAttention: cache": Row(linen=LinenDecode(), nnx=NnxDecode, programs=("forward",)),
    **{
        name: Row(
            linen=LinenMasks(masks),
            nnx=of(NnxMasks, masks),
            inputs={"x": normal(B, T, D), "ids": tokens(B, T)},
        )
        for name, masks in MASKS.items()
    },
    **{
        f"dot_product_attention: {name}".removesuffix(": "): Row(
            linen=LinenFunction(attend),
            nnx=lambda rngs, attend=attend: NnxFunction(attend),
            inputs=QKV,
            programs=("forward", "grad"),
            differs=ATTENTION_FUNCTION if name == "bfloat16" else None,
        )
        for name, attend in FUNCTION.items()
    },
}
