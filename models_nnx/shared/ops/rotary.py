"""Rotary positions. B batch, T position, N heads, H head_dim."""

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.config import RotaryScaling
from models_nnx.shared.ops.dtypes import wide_dtype

__all__ = [
    "rotary",
]


def rotary(
    x_BTNH: jax.Array, positions_BT: jax.Array, theta: float, scaling: RotaryScaling | None = None
) -> jax.Array:
    """Rotates pairs (i, i + H/2) of each head by an angle that grows with the position.

    Args:
        x_BTNH: queries or keys.
        positions_BT: int32 position of each token in its document.
        theta: base of the wavelengths.
        scaling: scaling of the wavelengths; None for no scaling.

    Returns:
        ``[B, T, N, H]`` in the dtype of ``x_BTNH``.

    Source: Su et al. 2021, in the half-split layout of the Llama checkpoints.
    """
    chex.assert_shape(positions_BT, x_BTNH.shape[:2])
    wide = wide_dtype(x_BTNH.dtype)
    half = x_BTNH.shape[-1] // 2
    wavelength = theta ** (jnp.arange(half, dtype=wide) / half)
    if scaling is not None:
        wavelength = wavelength * jnp.asarray(scaling.stretch(half, theta), wide)
    angle_BT1H = positions_BT[:, :, None, None].astype(wide) / wavelength[None, None, None, :]
    sin, cos = jnp.sin(angle_BT1H), jnp.cos(angle_BT1H)
    if scaling is not None and scaling.angle_factor != 1:
        sin, cos = sin * scaling.angle_factor, cos * scaling.angle_factor
    first, second = jnp.split(x_BTNH.astype(wide), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(
        x_BTNH.dtype
    )
