"""Inputs of predictors of further tokens: the batch, shifted by one token at each depth.

B batch, T position.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models_nnx.shared.config import ModelConfig, TrainConfig
from models_nnx.shared.ops.dtypes import wide_dtype
from models_nnx.shared.sharding import Rules, constrain

__all__ = ["ROLLED", "MtpInputs", "mtp_rate", "roll_batch"]

ROLLED = ("tokens", "targets", "segments", "positions", "weights")
EPSILON = 1e-8
"""Added to the sum of weights: a batch may have no token that has one further token."""


class MtpInputs(NamedTuple):
    """Inputs of a call to train or to evaluate the predictors of further tokens.

    Args:
        batch: ``tokens, targets, segments, positions, weights``, each ``[B, T]``.
        train: settings of the losses; the z-loss is of the main model only.
        accept: True to compare with the main model's choices too, as an evaluation does.
    """

    batch: Mapping[str, jax.Array]
    train: TrainConfig
    accept: bool = False


def roll_batch(batch: Mapping[str, jax.Array], rules: Rules) -> dict[str, jax.Array]:
    """Returns the batch of the next depth: each position has the entry of the position to its right.

    Entries do not cross into another document. There everything is 0, including the segment, so that no expert takes
    such a position.

    Args:
        batch: ``segments`` and others, each ``[B, T]``.
        rules: ordered logical axis rules.
    """

    def left(x_BT):
        return jnp.pad(x_BT[:, 1:], ((0, 0), (0, 1)))

    # A shift along a sharded length has no rule on an explicit mesh; these are a few integers per token.
    whole = {name: constrain(x_BT, ("activation_batch", None), rules) for name, x_BT in batch.items()}
    segments_BT = whole["segments"]
    inside_BT = (segments_BT != 0) & (segments_BT == left(segments_BT))
    axes = ("activation_batch", "activation_length")
    return {name: constrain(jnp.where(inside_BT, left(x_BT), 0), axes, rules) for name, x_BT in whole.items()}


def mtp_rate(batch: Mapping[str, jax.Array], config: ModelConfig) -> jax.Array | None:
    """Returns the factor of the further tokens' summed cross-entropies in a sum of losses.

    Divided by the weight of the batch, like the sum of losses, the product is ``loss_scale * sum / (weights +
    epsilon)`` over all depths. The weights are the whole batch's, so that microbatches add up to it.

    Args:
        batch: the batch of a whole step.
        config: the model; None is returned if it predicts no further tokens.
    """
    if config.mtp is None:
        return None
    wide = wide_dtype(config.compute_dtype)
    weight_sum, ahead_sum = jnp.sum(batch["weights"]).astype(wide), jnp.zeros((), wide)
    rolled = {name: batch[name] for name in ("segments", "weights")}
    for _ in config.mtp.names:
        rolled = roll_batch(rolled, config.rules)
        ahead_sum += jnp.sum(rolled["weights"]).astype(wide)
    return config.mtp.loss_scale * weight_sum / (ahead_sum + EPSILON)
