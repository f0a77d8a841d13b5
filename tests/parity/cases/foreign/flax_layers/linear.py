"""Dense, convolutions, einsum, embeddings, low rank."""

import jax.numpy as jnp
from flax import linen, nnx

from flax_layers.rows import BFLOAT16, B, D, H, Row, T, normal, of, variants

NO_BIAS = {"no bias": {"use_bias": False}}
IMAGE = {"x": normal(B, 7, 9, 4)}

CONVOLUTIONS = {
    "strides": {"strides": 2},
    "valid": {"padding": "VALID"},
    "causal": {"padding": "CAUSAL"},
    "circular": {"padding": "CIRCULAR"},
    "reflect": {"padding": "REFLECT"},
    "padding by number": {"padding": 2},
    "padding by pairs": {"padding": [(1, 2)]},
    "input dilation": {"input_dilation": 2, "padding": [(1, 1)]},
    "kernel dilation": {"kernel_dilation": 2},
    "groups": {"feature_group_count": 3},
    "masked": {"mask": jnp.asarray([1.0, 1.0, 0.0])[:, None, None] * jnp.ones((3, D, H))},
}
TRANSPOSED = {
    "strides": {"strides": (2,)},
    "valid": {"padding": "VALID"},
    "circular": {"padding": "CIRCULAR", "strides": (2,)},
    "kernel dilation": {"kernel_dilation": (2,)},
    "transposed kernel": {"transpose_kernel": True},
    "masked": {"mask": jnp.asarray([1.0, 1.0, 0.0])[:, None, None] * jnp.ones((3, D, H))},
}


class LinenEmbed(linen.Module):
    options: dict

    @linen.compact
    def __call__(self, ids):
        embed = linen.Embed(11, H, **self.options)
        return embed.attend(embed(ids))


class NnxEmbed(nnx.Module):
    def __init__(self, rngs, **options):
        self.embed = nnx.Embed(11, H, rngs=rngs, **options)

    def __call__(self, ids):
        return self.embed.attend(self.embed(ids))


def ids(rng):
    return rng.integers(0, 11, (B, T))


ROWS = {
    **variants("Dense", (of(linen.Dense, H), of(nnx.Linear, D, H)), {**BFLOAT16, **NO_BIAS}),
    **variants(
        "DenseGeneral",
        (of(linen.DenseGeneral, (2, 3)), of(nnx.LinearGeneral, D, (2, 3))),
        {**BFLOAT16, **NO_BIAS},
    ),
    "DenseGeneral: two axes": Row(
        linen=linen.DenseGeneral((2, 3), axis=(-2, -1)),
        nnx=of(nnx.LinearGeneral, (T, D), (2, 3), axis=(-2, -1)),
    ),
    "DenseGeneral: batch": Row(
        linen=linen.DenseGeneral(H, axis=-1, batch_dims=(0,)),
        nnx=of(nnx.LinearGeneral, D, H, axis=-1, batch_axis={0: B}),
    ),
    **variants(
        "Einsum",
        (of(linen.Einsum, (D, H), "btd,dh->bth", use_bias=False), of(nnx.Einsum, "btd,dh->bth", (D, H))),
        BFLOAT16,
    ),
    "Einsum: bias": Row(
        linen=linen.Einsum((D, 2, 3), "btd,dnh->btnh"),
        nnx=of(nnx.Einsum, "btd,dnh->btnh", (D, 2, 3), (2, 3)),
    ),
    **variants("Embed", (of(linen.Embed, 11, H), of(nnx.Embed, 11, H)), BFLOAT16, inputs={"ids": ids}),
    "Embed: attend": Row(linen=of(LinenEmbed, {}), nnx=NnxEmbed, inputs={"ids": ids}),
    "Embed: attend in bfloat16": Row(
        linen=of(LinenEmbed, {"dtype": jnp.bfloat16}),
        nnx=of(NnxEmbed, dtype=jnp.bfloat16),
        inputs={"ids": ids},
    ),
    **variants(
        "Conv", (of(linen.Conv, H, (3,)), of(nnx.Conv, D, H, (3,))), {**BFLOAT16, **NO_BIAS, **CONVOLUTIONS}
    ),
    **variants(
        "ConvTranspose",
        (of(linen.ConvTranspose, H, (3,)), of(nnx.ConvTranspose, D, H, (3,))),
        {**BFLOAT16, **NO_BIAS, **TRANSPOSED},
    ),
    "Conv: images": Row(
        linen=linen.Conv(H, (3, 2), strides=(2, 1)),
        nnx=of(nnx.Conv, 4, H, (3, 2), strides=(2, 1)),
        inputs=IMAGE,
    ),
    "ConvTranspose: images": Row(
        linen=linen.ConvTranspose(H, (3, 2), strides=(2, 1)),
        nnx=of(nnx.ConvTranspose, 4, H, (3, 2), strides=(2, 1)),
        inputs=IMAGE,
    ),
}
