"""Norms, their statistics and masks; norms of weights; dropout; PReLU."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from flax_layers.differences import BATCH_NORM, DROPOUT, NORM, SPECTRAL, USED_BATCH_NORM, WEIGHT, WRITTEN
from flax_layers.rows import BFLOAT16, B, D, H, Row, T, normal, of, variants


def mask(rng):
    kept = rng.random((B, T, 1)) > 0.4
    kept[:, 0] = True
    return kept


def mask_of_entries(rng):
    """No token is hidden completely, so every token keeps entries to normalise."""
    kept = rng.random((B, T, D)) > 0.4
    kept[..., 0] = True
    return kept


def full_mask(rng):
    return np.broadcast_to(mask(rng), (B, T, D)).copy()


MASKED = {
    "inputs": {"x": normal(B, T, D), "mask": mask},
    "options": {"arguments": ("x",), "keywords": ("mask",)},
}
FULLY_MASKED = {**MASKED, "inputs": {"x": normal(B, T, D), "mask": full_mask}}
ENTRIES_MASKED = {**MASKED, "inputs": {"x": normal(B, T, D), "mask": mask_of_entries}}
OVER_ENTRIES = ("LayerNorm", "RMSNorm")
PARTS = {
    "no bias": {"use_bias": False},
    "no scale": {"use_scale": False},
    "slow variance": {"use_fast_variance": False},
}
RMS_PARTS = {name: part for name, part in PARTS.items() if name == "slow variance"}
NORMS = {
    "LayerNorm": (linen.LayerNorm, of(nnx.LayerNorm, D), PARTS),
    "RMSNorm": (linen.RMSNorm, of(nnx.RMSNorm, D), RMS_PARTS),
    "GroupNorm": (of(linen.GroupNorm, 3), of(nnx.GroupNorm, D, 3), PARTS),
    "InstanceNorm": (linen.InstanceNorm, of(nnx.InstanceNorm, D), PARTS),
}
TRAINED, USED = {"use_running_average": False}, {"use_running_average": True}
BATCH_NORM_DIFFERS = {"bfloat16": BATCH_NORM, "running averages in bfloat16": USED_BATCH_NORM}
BATCH_NORMS = {
    "": TRAINED,
    "bfloat16": {**TRAINED, "dtype": jnp.bfloat16},
    "momentum": {**TRAINED, "momentum": 0.5},
    **{name: {**TRAINED, **part} for name, part in PARTS.items()},
    "running averages": USED,
    "running averages in bfloat16": {**USED, "dtype": jnp.bfloat16},
}


class LinenSpectral(linen.Module):
    steps: int = 1
    update: bool = True

    @linen.compact
    def __call__(self, x):
        return linen.SpectralNorm(linen.Dense(H), n_steps=self.steps)(x, update_stats=self.update)


class LinenWeight(linen.Module):
    options: dict

    @linen.compact
    def __call__(self, x):
        return linen.WeightNorm(linen.Dense(H), **self.options)(x)


def nnx_weight(rngs, **options):
    return nnx.WeightNorm(nnx.Linear(D, H, rngs=rngs), rngs=rngs, **options)


def nnx_spectral(rngs, steps=1, update=True):
    return nnx.SpectralNorm(nnx.Linear(D, H, rngs=rngs), n_steps=steps, update_stats=update, rngs=rngs)


class LinenDrop(linen.Module):
    rate: float
    deterministic: bool
    broadcast_dims: tuple = ()

    @linen.compact
    def __call__(self, x):
        x = linen.Dense(H)(x)
        return x + linen.Dropout(self.rate, self.broadcast_dims, deterministic=self.deterministic)(x)


class NnxDrop(nnx.Module):
    def __init__(self, rngs, rate, deterministic, broadcast_dims=()):
        self.dense = nnx.Linear(D, H, rngs=rngs)
        self.dropout = nnx.Dropout(
            rate, broadcast_dims=broadcast_dims, deterministic=deterministic, rngs=rngs
        )

    def __call__(self, x):
        x = self.dense(x)
        return x + self.dropout(x)


def dropped(rate, deterministic):
    return {
        "linen": of(LinenDrop, rate=rate, deterministic=deterministic),
        "nnx": of(NnxDrop, rate=rate, deterministic=deterministic),
        "options": {} if deterministic else {"rngs": ("dropout",)},
    }


ROWS = {
    **{
        key: row
        for name, (left, right, parts) in NORMS.items()
        for key, row in variants(name, (left, right), {**BFLOAT16, **parts}, {"bfloat16": NORM}).items()
    },
    **{
        f"{name}: masked": Row(
            linen=left(), nnx=right, **(ENTRIES_MASKED if name in OVER_ENTRIES else MASKED)
        )
        for name, (left, right, _) in NORMS.items()
        if name != "GroupNorm"  # takes no mask that broadcasts, in neither flavour
    },
    "GroupNorm: masked": Row(linen=linen.GroupNorm(3), nnx=of(nnx.GroupNorm, D, 3), **FULLY_MASKED),
    "RMSNorm: no scale": Row(
        linen=linen.RMSNorm(use_scale=False),
        nnx=of(nnx.RMSNorm, D, use_scale=False),
        programs=("forward", "grad"),
    ),
    # workarounds for NORM and BATCH_NORM
    **{
        f"{name}: bfloat16 as Linen": Row(
            linen=of(left, dtype=jnp.bfloat16)(),
            nnx=of(right, dtype=jnp.bfloat16, promote_dtype=lambda arrays, **_: arrays),
        )
        for name, left, right in (
            *((name, *layers[:2]) for name, layers in NORMS.items()),
            ("BatchNorm", of(linen.BatchNorm, **TRAINED), of(nnx.BatchNorm, D)),
        )
    },
    "LayerNorm: two axes": Row(
        linen=linen.LayerNorm(reduction_axes=(-2, -1)), nnx=of(nnx.LayerNorm, D, reduction_axes=(-2, -1))
    ),
    **variants("BatchNorm", (linen.BatchNorm, of(nnx.BatchNorm, D)), BATCH_NORMS, BATCH_NORM_DIFFERS),
    "BatchNorm: masked": Row(
        linen=linen.BatchNorm(use_running_average=False), nnx=of(nnx.BatchNorm, D), **MASKED
    ),
    "WeightNorm": Row(linen=LinenWeight({}), nnx=nnx_weight, differs=WEIGHT),
    "WeightNorm: no scale": Row(
        linen=LinenWeight({"use_scale": False}), nnx=of(nnx_weight, use_scale=False), differs=WRITTEN
    ),
    **{
        f"SpectralNorm: {name}".removesuffix(": "): Row(
            linen=LinenSpectral(**options), nnx=of(nnx_spectral, **options), differs=SPECTRAL
        )
        for name, options in {"": {}, "three steps": {"steps": 3}, "no update": {"update": False}}.items()
    },
    "Dropout": Row(**dropped(0.5, True)),
    "Dropout: rate 0": Row(**dropped(0.0, False)),
    "Dropout: rate 1": Row(**dropped(1.0, False)),
    "Dropout: on": Row(**dropped(0.5, False), differs=DROPOUT),
    "PReLU": Row(linen=linen.PReLU(), nnx=lambda rngs: nnx.PReLU()),
    "PReLU: bfloat16": Row(
        linen=linen.PReLU(param_dtype=jnp.bfloat16), nnx=lambda rngs: nnx.PReLU(param_dtype=jnp.bfloat16)
    ),
}
