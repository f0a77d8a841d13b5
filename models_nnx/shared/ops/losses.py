"""Losses as sums. B batch, T position, V vocab."""

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.ops.dtypes import wide_dtype

__all__ = [
    "cross_entropy",
    "weigh",
]


def cross_entropy(
    logits_BTV: jax.Array, targets_BT: jax.Array, weights_BT: jax.Array, z_loss: float
) -> tuple[jax.Array, jax.Array]:
    """Returns the sum over tokens of cross-entropy plus ``z_loss * logsumexp ** 2``, and the sum of weights.

    Sums, not means: gradient accumulation divides once, by the weight of the whole batch.

    Args:
        logits_BTV: any float dtype; computed in float32 (or wider).
        targets_BT: int32 in [0, V).
        weights_BT: 0 or 1 per token.
        z_loss: weight of the penalty on the log-partition (Chowdhery et al. 2022).

    Returns:
        ``(loss_sum, weight_sum)``, scalars.
    """
    chex.assert_shape(targets_BT, logits_BTV.shape[:-1])
    wide = wide_dtype(logits_BTV.dtype)
    logits_BTV = logits_BTV.astype(wide)
    log_partition_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
    target_logit_BT = jnp.sum(
        logits_BTV * jax.nn.one_hot(targets_BT, logits_BTV.shape[-1], dtype=wide), axis=-1
    )
    return weigh(log_partition_BT, target_logit_BT, weights_BT, z_loss)


def weigh(
    log_partition_BT: jax.Array, target_logit_BT: jax.Array, weights_BT: jax.Array, z_loss: float
) -> tuple[jax.Array, jax.Array]:
    """Returns the sum over tokens of the loss, and the sum of weights.

    Args:
        log_partition_BT: logarithm of the sum of all exponentials, in float32 or wider.
        target_logit_BT: logit of the target, in the same dtype.
        weights_BT: 0 or 1 per token.
        z_loss: weight of the squared log-partition.
    """
    chex.assert_equal_shape([log_partition_BT, target_logit_BT, weights_BT])
    token_loss_BT = log_partition_BT - target_logit_BT + z_loss * jnp.square(log_partition_BT)
    weights_BT = weights_BT.astype(log_partition_BT.dtype)
    return jnp.sum(token_loss_BT * weights_BT), jnp.sum(weights_BT)
