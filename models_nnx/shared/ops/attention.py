"""Attention: masks and scores.

B batch, T query position, S key position, N query heads, K key-value heads, G query heads per key-value
head (N = K * G), H head_dim, V width of a value.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.config import AttentionConfig, AttentionKernel
from models_nnx.shared.ops.dtypes import wide_dtype
from models_nnx.shared.sharding import Rules, constrain

__all__ = [
    "SINK_INIT",
    "attention",
    "causal_segment_mask",
    "repeat_heads",
    "soft_cap",
]


SINK_INIT = jax.nn.initializers.normal(stddev=0.02)


def causal_segment_mask(
    segments_BT: jax.Array, segments_BS: jax.Array, window: int | None = None
) -> jax.Array:
    """Returns the mask of packed documents: a query sees earlier keys in the same segment, and itself.

    Args:
        segments_BT: int32 segment of each query; 0 is padding, which sees padding only.
        segments_BS: int32 segment of each key; a separate argument, because its sharding may differ.
        window: number of keys that a query sees, its own included; None for all.

    Returns:
        bool ``[B, T, S]``, True where the query sees the key.
    """
    query_T, key_S = (jnp.arange(segments.shape[1]) for segments in (segments_BT, segments_BS))
    causal_TS = query_T[:, None] >= key_S[None, :]
    if window is not None:
        causal_TS &= query_T[:, None] - key_S[None, :] < window
    return (segments_BT[:, :, None] == segments_BS[:, None, :]) & causal_TS[None]


def repeat_heads(x_BSP: jax.Array, heads: int, axes: Sequence[str | None], rules: Rules) -> jax.Array:
    """Returns ``[B, S, N, P]``: one key repeated for all heads, placed by ``rules``.

    Args:
        x_BSP: the key.
        heads: N.
        axes: logical axes of the result.
        rules: ordered logical axis rules.

    Raises:
        ShardingError: the rules do not fit the result.
    """
    B, S, P = x_BSP.shape
    return constrain(jnp.broadcast_to(x_BSP[:, :, None], (B, S, heads, P)), axes, rules)


def soft_cap(x: jax.Array, cap: float | None) -> jax.Array:
    """Returns ``cap * tanh(x / cap)``, computed in float32 (or wider), in the dtype of ``x``; None leaves ``x``.

    Source: Gemma Team 2024, Gemma 2, section 2.
    """
    if cap is None:
        return x
    return (cap * jnp.tanh(x.astype(wide_dtype(x.dtype)) / cap)).astype(x.dtype)


def softmax_beside_sink(scores_BKGTS: jax.Array, sink_N: jax.Array) -> jax.Array:
    """Returns the softmax over keys and one more score per head, which takes weight and contributes no value.

    Args:
        scores_BKGTS: scores in float32 or wider.
        sink_N: the further score of each query head.

    Source: OpenAI 2025, gpt-oss, after Xiao et al. 2023.
    """
    sink_BKGTS = sink_N.astype(scores_BKGTS.dtype).reshape(1, *scores_BKGTS.shape[1:3], 1, 1)
    top = jnp.maximum(jnp.max(scores_BKGTS, axis=-1, keepdims=True), sink_BKGTS)
    top = jax.lax.stop_gradient(top)
    powers = jnp.exp(scores_BKGTS - top)
    return powers / (jnp.sum(powers, axis=-1, keepdims=True) + jnp.exp(sink_BKGTS - top))


def attention(
    query_BTNH: jax.Array,
    key_BSKH: jax.Array,
    value_BSKV: jax.Array,
    mask_BTS: jax.Array,
    config: AttentionConfig,
    sink_N: jax.Array | None = None,
) -> jax.Array:
    """Returns grouped-query softmax attention with scores and softmax in float32.

    The plain kernel computes them in float64 for float64 inputs; the library's stays in float32.

    Args:
        query_BTNH: query head n reads key-value head ``n // G``.
        key_BSKH: keys.
        value_BSKV: values, of any width V.
        mask_BTS: True where a query sees a key; every row has a True.
        config: scale and soft cap of scores, and the implementation.
        sink_N: the sink of each query head; None without sinks.

    Returns:
        ``[B, T, N, V]`` in the dtype of the query.
    """
    chex.assert_shape(mask_BTS, (*query_BTNH.shape[:2], key_BSKH.shape[1]))
    if config.kernel is AttentionKernel.LIBRARY:
        return jax.nn.dot_product_attention(
            query_BTNH, key_BSKH, value_BSKV, mask=mask_BTS[:, None], scale=config.score_scale
        )
    wide = wide_dtype(query_BTNH.dtype)
    B, T, N, H = query_BTNH.shape
    K = key_BSKH.shape[2]
    query_BTKGH = query_BTNH.reshape(B, T, K, N // K, H)
    scores_BKGTS = jnp.einsum("BTKGH,BSKH->BKGTS", query_BTKGH, key_BSKH, preferred_element_type=wide)
    scores_BKGTS = soft_cap(scores_BKGTS * config.score_scale, config.soft_cap)
    scores_BKGTS = jnp.where(mask_BTS[:, None, None], scores_BKGTS, jnp.finfo(wide).min)
    if sink_N is None:
        weights_BKGTS = jax.nn.softmax(scores_BKGTS, axis=-1)
    else:
        weights_BKGTS = softmax_beside_sink(scores_BKGTS, sink_N)
    weights_BKGTS = weights_BKGTS.astype(value_BSKV.dtype)
    out_BTKGV = jnp.einsum("BKGTS,BSKV->BTKGV", weights_BKGTS, value_BSKV)
    return out_BTKGV.reshape(B, T, N, -1)
