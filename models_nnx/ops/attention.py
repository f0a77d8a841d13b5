"""Attention: positions, masks, scores.

B batch, T query position, S key position, N query heads, K key-value heads, G query heads per key-value
head (N = K * G), H head_dim.
"""

import jax
import jax.numpy as jnp

from models_nnx.config import AttentionKernel
from models_nnx.ops.dtypes import wide_dtype

__all__ = [
    "attention",
    "causal_segment_mask",
    "rotary",
]


def rotary(x_BTNH: jax.Array, positions_BT: jax.Array, theta: float) -> jax.Array:
    """Rotates pairs (i, i + H/2) of each head by an angle that grows with the position.

    Args:
        x_BTNH: queries or keys.
        positions_BT: int32 position of each token in its document.
        theta: base of the wavelengths.

    Returns:
        ``[B, T, N, H]`` in the dtype of ``x_BTNH``.

    Source: Su et al. 2021, in the half-split layout of the Llama checkpoints.
    """
    wide = wide_dtype(x_BTNH.dtype)
    half = x_BTNH.shape[-1] // 2
    wavelength = theta ** (jnp.arange(half, dtype=wide) / half)
    angle_BT1H = positions_BT[:, :, None, None].astype(wide) / wavelength[None, None, None, :]
    sin, cos = jnp.sin(angle_BT1H), jnp.cos(angle_BT1H)
    first, second = jnp.split(x_BTNH.astype(wide), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(
        x_BTNH.dtype
    )


def causal_segment_mask(
    segments_BT: jax.Array, segments_BS: jax.Array, window: int | None = None
) -> jax.Array:
    """Mask of packed documents: a query sees earlier keys of its own segment, and itself.

    Args:
        segments_BT: int32 segment of each query; 0 is padding, which sees padding only.
        segments_BS: the same of each key; its own argument, because it may lie elsewhere on the mesh.
        window: how many keys a query sees, its own among them; None for all.

    Returns:
        bool ``[B, T, S]``, True where the query may look.
    """
    query_T, key_S = (jnp.arange(segments.shape[1]) for segments in (segments_BT, segments_BS))
    causal_TS = query_T[:, None] >= key_S[None, :]
    if window is not None:
        causal_TS &= query_T[:, None] - key_S[None, :] < window
    return (segments_BT[:, :, None] == segments_BS[:, None, :]) & causal_TS[None]


def attention(
    query_BTNH: jax.Array,
    key_BSKH: jax.Array,
    value_BSKH: jax.Array,
    mask_BTS: jax.Array,
    kernel: AttentionKernel = AttentionKernel.PLAIN,
) -> jax.Array:
    """Grouped-query softmax attention with scores and softmax in float32.

    The plain kernel computes them in float64 for float64 inputs; the library's stays in float32.

    Args:
        query_BTNH: query head n reads key-value head ``n // G``.
        key_BSKH: keys.
        value_BSKH: values.
        mask_BTS: True where a query may look; every row has a True.
        kernel: which implementation.

    Returns:
        ``[B, T, N, H]`` in the dtype of the query.
    """
    if kernel is AttentionKernel.LIBRARY:
        return jax.nn.dot_product_attention(query_BTNH, key_BSKH, value_BSKH, mask=mask_BTS[:, None])
    wide = wide_dtype(query_BTNH.dtype)
    B, T, N, H = query_BTNH.shape
    K = key_BSKH.shape[2]
    query_BTKGH = query_BTNH.reshape(B, T, K, N // K, H)
    scores_BKGTS = jnp.einsum("BTKGH,BSKH->BKGTS", query_BTKGH, key_BSKH, preferred_element_type=wide)
    scores_BKGTS = scores_BKGTS * (H**-0.5)
    scores_BKGTS = jnp.where(mask_BTS[:, None, None], scores_BKGTS, jnp.finfo(wide).min)
    weights_BKGTS = jax.nn.softmax(scores_BKGTS, axis=-1).astype(value_BSKH.dtype)
    out_BTKGH = jnp.einsum("BKGTS,BSKH->BTKGH", weights_BKGTS, value_BSKH)
    return out_BTKGH.reshape(B, T, N, H)
