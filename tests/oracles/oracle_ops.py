"""The decoder's maths written from the papers, for NumPy in float64; shares no code with the twins.

Every function takes the array module ``xp``, so that JAX can differentiate the same lines. Letters: B batch,
T query, S key, D embed, N query heads, K key-value heads, H head_dim, V vocab.
"""

import math

import numpy as np


def rms_norm(x, scale, epsilon, xp=np):
    """Returns the norm of Zhang and Sennrich 2019, equation 4, with epsilon inside the root."""
    mean_square = xp.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
    return x / xp.sqrt(mean_square + epsilon) * scale[(None,) * (x.ndim - 1)]


def rotary(x_BTNH, positions_BT, theta, xp=np):
    """Rotates entries i and i + H/2 as one complex number by position * theta^(-2i/H) (Su et al. 2021)."""
    half = x_BTNH.shape[-1] // 2
    frequency = np.asarray([theta ** (-2 * i / (2 * half)) for i in range(half)])
    angle = (np.asarray(positions_BT)[..., None] * frequency).astype(x_BTNH.dtype)[:, :, None]
    real, imaginary = x_BTNH[..., :half], x_BTNH[..., half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return xp.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)


def visible(segments_BT):
    """Returns ``[B, T, S]``: a query sees itself and earlier tokens of its document."""
    rows, length = np.shape(segments_BT)
    seen = np.zeros((rows, length, length), bool)
    for b in range(rows):
        for t in range(length):
            for s in range(t + 1):
                seen[b, t, s] = segments_BT[b][t] == segments_BT[b][s]
    return seen


def softmax(x, xp=np):
    """Returns the softmax over the last axis."""
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def attention(query_BTNH, key_BSKH, value_BSKH, seen_BTS, xp=np):
    """Returns attention by Vaswani et al. 2017, with each key-value head repeated for its group (Ainslie et al.
    2023)."""
    group = query_BTNH.shape[2] // key_BSKH.shape[2]
    key_BSNH, value_BSNH = xp.repeat(key_BSKH, group, axis=2), xp.repeat(value_BSKH, group, axis=2)
    scores = xp.einsum("btnh,bsnh->bnts", query_BTNH, key_BSNH) / math.sqrt(query_BTNH.shape[-1])
    weights = softmax(xp.where(seen_BTS[:, None], scores, -np.inf), xp)
    return xp.einsum("bnts,bsnh->btnh", weights, value_BSNH)


def attention_one_by_one(query_BTNH, key_BSKH, value_BSKH, segments_BT):
    """Returns attention of one query at a time over its keys; no mask, no batching."""
    B, T, N, _ = query_BTNH.shape
    group = N // key_BSKH.shape[2]
    out = np.zeros(query_BTNH.shape)
    for b in range(B):
        for t in range(T):
            keys = [s for s in range(t + 1) if segments_BT[b, s] == segments_BT[b, t]]
            for n in range(N):
                scores = [float(query_BTNH[b, t, n] @ key_BSKH[b, s, n // group]) for s in keys]
                weights = softmax(np.asarray(scores) / math.sqrt(query_BTNH.shape[-1]))
                out[b, t, n] = sum(
                    w * value_BSKH[b, s, n // group] for w, s in zip(weights, keys, strict=True)
                )
    return out


def silu(x, xp=np):
    """Returns SiLU (Elfwing et al. 2018)."""
    return x / (1 + xp.exp(-x))


def gelu(x, xp=np):
    """Returns the tanh approximation of GELU (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def cross_entropy(logits_BTV, targets_BT, weights_BT, z_loss, xp=np):
    """Returns the weighted sum of ``-log p(target) + z_loss * log(Z)^2``, and the sum of the weights."""
    top = xp.max(logits_BTV, axis=-1, keepdims=True)
    log_z = top[..., 0] + xp.log(xp.sum(xp.exp(logits_BTV - top), axis=-1))
    target = xp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    return xp.sum((log_z - target + z_loss * log_z**2) * weights_BT), xp.sum(weights_BT)
