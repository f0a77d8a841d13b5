"""Norms. D embed."""

import jax
import jax.numpy as jnp

from models_nnx.ops.dtypes import wide_dtype

__all__ = [
    "rms_norm",
]


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """Root-mean-square norm over the last axis, computed in float32 (or wider).

    Args:
        x: ``[..., D]``.
        scale: ``[D]``.
        epsilon: added to the mean square.

    Returns:
        ``[..., D]`` in the dtype of ``x``.

    Source: Zhang and Sennrich 2019.
    """
    wide = wide_dtype(x.dtype)
    x_wide = x.astype(wide)
    mean_square = jnp.mean(jnp.square(x_wide), axis=-1, keepdims=True)
    normed = x_wide * jax.lax.rsqrt(mean_square + epsilon)
    return (normed * scale.astype(wide).reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)
