"""Framework-free maths shared by both twins.

B batch, T query position, S key position, D embed, N query heads, K key-value heads, G query heads
per key-value head (N = K * G), H head_dim, F mlp hidden, V vocab.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from models_nnx.config import Activation, AttentionKernel, RematConfig, RematPolicy
from models_nnx.sharding import Rules, constrain, out_sharding

__all__ = [
    "EMBEDDING_INIT",
    "accumulate",
    "attention",
    "causal_segment_mask",
    "cross_entropy",
    "dropout",
    "einsum",
    "gated_activation",
    "kernel_init",
    "lookup",
    "remat_policy",
    "rms_norm",
    "rotary",
    "tag",
]

tag = checkpoint_name

EMBEDDING_INIT = jax.nn.initializers.normal(stddev=0.02)


def kernel_init(equation: str) -> jax.nn.initializers.Initializer:
    """Returns a truncated-normal initializer scaled by the fan-in of an einsum.

    Args:
        equation: ``"BTD,DNH->BTNH"``; kernel letters missing from the output are the fan-in.
    """
    operands, output = equation.split("->")
    kernel = operands.split(",")[1]
    contracted = [axis for axis, letter in enumerate(kernel) if letter not in output]
    kept = [axis for axis, letter in enumerate(kernel) if letter in output]
    return jax.nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", contracted, kept)


def einsum(
    equation: str, x: jax.Array, kernel: jax.Array, *, out_axes: Sequence[str | None], rules: Rules
) -> jax.Array:
    """Contracts ``x`` with ``kernel`` and puts the result where ``rules`` say.

    Args:
        equation: one letter per dimension, ``"BTD,DF->BTF"``.
        x: the activation.
        kernel: in the dtype of ``x``.
        out_axes: logical axes of the result.
        rules: ordered logical axis rules.

    Raises:
        ShardingError: the rules do not fit the result.
    """
    sizes = dict(zip(equation.split("->")[0].replace(",", ""), (*x.shape, *kernel.shape), strict=True))
    shape = tuple(sizes[letter] for letter in equation.split("->")[1])
    out = jnp.einsum(equation, x, kernel, out_sharding=out_sharding(out_axes, shape, rules))
    return constrain(out, out_axes, rules)


def lookup(
    table_VD: jax.Array, tokens_BT: jax.Array, *, out_axes: Sequence[str | None], rules: Rules
) -> jax.Array:
    """Returns the rows ``[B, T, D]`` of ``table_VD`` for ``tokens_BT``, put where ``rules`` say.

    Args:
        table_VD: embeddings.
        tokens_BT: int32 in [0, V).
        out_axes: logical axes of the result.
        rules: ordered logical axis rules.

    Raises:
        ShardingError: the rules do not fit the result.
    """
    shape = (*tokens_BT.shape, table_VD.shape[-1])
    spec = out_sharding(out_axes, shape, rules)
    return constrain(table_VD.at[tokens_BT].get(out_sharding=spec), out_axes, rules)


def _wide(dtype: jnp.dtype) -> jnp.dtype:
    """Returns the dtype that norms, softmax and losses compute in: float64 for float64, else float32."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


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
    wide = _wide(x.dtype)
    x_wide = x.astype(wide)
    mean_square = jnp.mean(jnp.square(x_wide), axis=-1, keepdims=True)
    normed = x_wide * jax.lax.rsqrt(mean_square + epsilon)
    return (normed * scale.astype(wide).reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)


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
    wide = _wide(x_BTNH.dtype)
    half = x_BTNH.shape[-1] // 2
    wavelength = theta ** (jnp.arange(half, dtype=wide) / half)
    angle_BT1H = positions_BT[:, :, None, None].astype(wide) / wavelength[None, None, None, :]
    sin, cos = jnp.sin(angle_BT1H), jnp.cos(angle_BT1H)
    first, second = jnp.split(x_BTNH.astype(wide), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(
        x_BTNH.dtype
    )


def causal_segment_mask(segments_BT: jax.Array, segments_BS: jax.Array) -> jax.Array:
    """Mask of packed documents: a query sees earlier keys of its own segment, and itself.

    Args:
        segments_BT: int32 segment of each query; 0 is padding, which sees padding only.
        segments_BS: the same of each key; its own argument, because it may lie elsewhere on the mesh.

    Returns:
        bool ``[B, T, S]``, True where the query may look.
    """
    query_T, key_S = (jnp.arange(segments.shape[1]) for segments in (segments_BT, segments_BS))
    causal_TS = query_T[:, None] >= key_S[None, :]
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
    wide = _wide(query_BTNH.dtype)
    B, T, N, H = query_BTNH.shape
    K = key_BSKH.shape[2]
    query_BTKGH = query_BTNH.reshape(B, T, K, N // K, H)
    scores_BKGTS = jnp.einsum("BTKGH,BSKH->BKGTS", query_BTKGH, key_BSKH, preferred_element_type=wide)
    scores_BKGTS = scores_BKGTS * (H**-0.5)
    scores_BKGTS = jnp.where(mask_BTS[:, None, None], scores_BKGTS, jnp.finfo(wide).min)
    weights_BKGTS = jax.nn.softmax(scores_BKGTS, axis=-1).astype(value_BSKH.dtype)
    out_BTKGH = jnp.einsum("BKGTS,BSKH->BTKGH", weights_BKGTS, value_BSKH)
    return out_BTKGH.reshape(B, T, N, H)


def gated_activation(gate_BTF: jax.Array, up_BTF: jax.Array, activation: Activation) -> jax.Array:
    """Returns ``activation(gate) * up``, the hidden layer of a gated MLP (Shazeer 2020)."""
    functions = {Activation.SILU: jax.nn.silu, Activation.GELU: jax.nn.gelu}
    return functions[activation](gate_BTF) * up_BTF


def dropout(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    """Zeroes entries with probability ``rate`` and scales the rest by ``1 / (1 - rate)``.

    The mask is drawn in float32 whatever the precision, so that a float64 run drops the same entries.
    """
    spec = jax.typeof(x).sharding
    keep = jax.random.bernoulli(key, p=jnp.float32(1.0 - rate), shape=x.shape, out_sharding=spec)
    return jax.lax.select(keep, x / (1.0 - rate), jnp.zeros_like(x))


def cross_entropy(
    logits_BTV: jax.Array, targets_BT: jax.Array, weights_BT: jax.Array, z_loss: float
) -> tuple[jax.Array, jax.Array]:
    """Sum over tokens of cross-entropy plus ``z_loss * logsumexp ** 2``, and the sum of weights.

    Sums, not means: gradient accumulation divides once, by the weight of the whole batch.

    Args:
        logits_BTV: any float dtype; computed in float32 (or wider).
        targets_BT: int32 in [0, V).
        weights_BT: 0 or 1 per token.
        z_loss: weight of the penalty on the log-partition (Chowdhery et al. 2022).

    Returns:
        ``(loss_sum, weight_sum)``, scalars.
    """
    wide = _wide(logits_BTV.dtype)
    logits_BTV = logits_BTV.astype(wide)
    log_partition_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
    target_logit_BT = jnp.sum(
        logits_BTV * jax.nn.one_hot(targets_BT, logits_BTV.shape[-1], dtype=wide), axis=-1
    )
    token_loss_BT = log_partition_BT - target_logit_BT + z_loss * jnp.square(log_partition_BT)
    weights_BT = weights_BT.astype(wide)
    return jnp.sum(token_loss_BT * weights_BT), jnp.sum(weights_BT)


def remat_policy(remat: RematConfig) -> Callable[..., bool] | None:
    """Returns the ``jax.checkpoint`` policy; None means keep nothing, which only ``full`` asks for."""
    policies = jax.checkpoint_policies
    table: dict[RematPolicy, Callable[..., bool] | None] = {
        RematPolicy.NONE: policies.everything_saveable,
        RematPolicy.FULL: None,
        RematPolicy.MINIMAL: policies.dots_with_no_batch_dims_saveable,
        RematPolicy.SAVE_NAMED: policies.save_only_these_names(*remat.names),
    }
    return table[remat.policy]


def accumulate(
    gradients: Callable[..., tuple[Any, jax.Array, jax.Array]],
    batch: Any,
    microbatches: int,
    key: jax.Array | None,
) -> tuple[Any, jax.Array, jax.Array]:
    """Sums gradients, losses and weights over microbatches, one after the other.

    Dividing the sums by the summed weight gives the full batch's mean, also where microbatches
    hold unequal numbers of tokens. Microbatch i takes rows i, i + n, i + 2n, ..., so that a sharded
    batch axis stays on its devices.

    Args:
        gradients: ``(batch, key) -> (grads, loss_sum, weight_sum)``.
        batch: tree of arrays ``[B, ...]``; ``microbatches`` divides B.
        microbatches: how many; 1 makes no loop.
        key: dropout key, folded with the microbatch's number; None for none.

    Returns:
        ``(grads, loss_sum, weight_sum)``, summed.

    Raises:
        ValueError: ``microbatches`` does not divide the rows.
    """
    rows = {x.shape[0] for x in jax.tree.leaves(batch)}
    if any(number % microbatches for number in rows):
        raise ValueError(
            f"accumulate: got batches of {sorted(rows)} rows for {microbatches} microbatches, expected a multiple; "
            "change the batch or TrainConfig.accumulation"
        )
    if microbatches == 1:
        return gradients(batch, key)

    def split(x):
        return jnp.swapaxes(x.reshape(-1, microbatches, *x.shape[1:]), 0, 1)

    def body(total, microbatch):
        number, batch = microbatch
        step_key = None if key is None else jax.random.fold_in(key, number)
        return jax.tree.map(jnp.add, total, gradients(batch, step_key)), None

    first = jax.tree.map(lambda x: x[::microbatches], batch)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradients, first, key))
    total, _ = jax.lax.scan(body, zeros, (jnp.arange(microbatches), jax.tree.map(split, batch)))
    return total
