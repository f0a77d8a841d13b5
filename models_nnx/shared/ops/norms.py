"""Norms. D embed."""

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.config import NormScale
from models_nnx.shared.ops.dtypes import wide_dtype

__all__ = [
    "norm_init",
    "rms_norm",
]


def norm_init(norm_scale: NormScale) -> jax.nn.initializers.Initializer:
    """Returns the initializer of a norm's parameter: a scale of one either way."""
    return jax.nn.initializers.zeros if norm_scale is NormScale.OFFSET else jax.nn.initializers.ones


def rms_norm(
    x: jax.Array, scale: jax.Array, epsilon: float, norm_scale: NormScale = NormScale.DIRECT
) -> jax.Array:
    """Returns the root-mean-square norm over the last axis, computed in float32 (or wider).

    Args:
        x: ``[..., D]``.
        scale: ``[D]``.
        epsilon: added to the mean square.
        norm_scale: form of ``scale``: the scale, or its offset from one.

    Returns:
        ``[..., D]`` in the dtype of ``x``.

    Source: Zhang and Sennrich 2019.
    """
    chex.assert_shape(scale, x.shape[-1:])
    wide = wide_dtype(x.dtype)
    x_wide = x.astype(wide)
    mean_square = jnp.mean(jnp.square(x_wide), axis=-1, keepdims=True)
    normed = x_wide * jax.lax.rsqrt(mean_square + epsilon)
    scale = scale.astype(wide)
    if norm_scale is NormScale.OFFSET:
        scale = 1 + scale
    return (normed * scale.reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)
