"""Multi-token prediction: predictors of further tokens, each fed by the one before.

B batch, T position, D embed, C embed twice, V vocab.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models_linen.blocks import Block
from models_linen.decoder import remat
from models_linen.linear import Linear
from models_linen.norms import RMSNorm
from models_nnx.shared import ops
from models_nnx.shared.config import LayerLayout, ModelConfig

__all__ = ["MultiTokenPrediction", "Predictor", "SharedHeads"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
LOSSES, ACCEPTANCE = "mtp_losses", "mtp_acceptance"


class SharedHeads(NamedTuple):
    """Functions that predictors share with the main model.

    Args:
        embed: tokens to ``[B, T, D]``.
        cross_entropy: ``(x_BTD, batch, train)`` to the sums of losses and of weights.
        logits: ``x_BTD`` to ``[B, T, V]``.
    """

    embed: Callable[..., jax.Array]
    cross_entropy: Callable[..., tuple[jax.Array, jax.Array]]
    logits: Callable[..., jax.Array]


class Predictor(nn.Module):
    """Predicts one token further than the model or predictor before it."""

    config: ModelConfig

    def setup(self):
        cfg = self.config
        self.embed_norm = RMSNorm(cfg)
        self.hidden_norm = RMSNorm(cfg)
        shape, axes = (2 * cfg.embed, cfg.embed), ("embed", None)
        self.projection = Linear(cfg, "BTC,CD->BTD", shape, axes, EMBEDDED)
        self.block = remat(Block, cfg, LayerLayout.UNROLLED)(cfg, cfg.ahead_layer)
        self.final_norm = RMSNorm(cfg)

    def __call__(self, embedded_BTD, hidden_BTD, batch, deterministic: bool):
        """Returns ``[B, T, D]`` from embedded tokens and the output of the predictor before."""
        both_BTC = jnp.concatenate([self.embed_norm(embedded_BTD), self.hidden_norm(hidden_BTD)], axis=-1)
        x_BTD = self.projection(both_BTC)
        return self.block(x_BTD, batch["segments"], batch["positions"], deterministic, None)

    def judge(self, x_BTD, batch, ahead: ops.MtpInputs, ends: SharedHeads):
        """Sows loss and weight of the predictions, and if requested the weight of those equal to the main model's."""
        x_BTD = self.final_norm(x_BTD)
        loss_sum, weight_sum = ends.cross_entropy(x_BTD, batch, ahead.train)
        self._sow(LOSSES, "loss_sum", loss_sum)
        self._sow(LOSSES, "weight_sum", weight_sum)
        if ahead.accept:
            same_BT = jnp.argmax(ends.logits(x_BTD), axis=-1) == batch["chosen"]
            self._sow(
                ACCEPTANCE, "accepted_sum", jnp.sum(same_BT * batch["weights"]).astype(weight_sum.dtype)
            )

    def _sow(self, collection: str, name: str, value):
        self.sow(collection, name, value, init_fn=lambda: None, reduce_fn=lambda before, now: now)


class MultiTokenPrediction(nn.Module):
    """The predictors: ``depth_1``, ``depth_2``, ..."""

    config: ModelConfig

    def setup(self):
        for name in self.config.ahead.names:
            setattr(self, name, Predictor(self.config))

    def __call__(self, x_BTD, ahead: ops.MtpInputs, ends: SharedHeads, deterministic: bool, chosen_BT=None):
        """Runs each predictor, which sows its losses.

        Args:
            x_BTD: the input of the main model's final norm.
            ahead: batch, settings of the losses, and comparison with the main model.
            ends: embedding and head.
            deterministic: no dropout.
            chosen_BT: int32 most likely tokens of the main model; needed to compare.
        """
        batch = {name: ahead.batch[name] for name in ops.ROLLED}
        batch |= {} if chosen_BT is None else {"chosen": chosen_BT}
        for name in self.config.ahead.names:
            predictor, batch = getattr(self, name), ops.roll_batch(batch, self.config.rules)
            x_BTD = predictor(ends.embed(batch["tokens"]), x_BTD, batch, deterministic)
            predictor.judge(x_BTD, batch, ahead, ends)
