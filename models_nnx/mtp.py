"""Multi-token prediction: predictors of further tokens, each fed by the one before.

B batch, T position, D embed, C embed twice, V vocab.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx.blocks import Block
from models_nnx.decoder import Inputs, apply_block
from models_nnx.linear import Linear
from models_nnx.norms import RMSNorm
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig
from models_nnx.state import MtpAcceptance, MtpLosses

__all__ = ["MultiTokenPrediction", "Predictor", "SharedHeads"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


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


class Predictor(nnx.Module):
    """Predicts one token further than the model or predictor before it."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg = config
        self.embed_norm = RMSNorm(cfg, rngs=rngs.at("embed_norm"))
        self.hidden_norm = RMSNorm(cfg, rngs=rngs.at("hidden_norm"))
        shape, axes = (2 * cfg.embed, cfg.embed), ("embed", None)
        self.projection = Linear(
            cfg, "BTC,CD->BTD", shape=shape, axes=axes, out_axes=EMBEDDED, rngs=rngs.at("projection")
        )
        self.block = Block(cfg, cfg.ahead_layer, rngs=rngs.at("block"))
        self.final_norm = RMSNorm(cfg, rngs=rngs.at("final_norm"))

    def __call__(self, embedded_BTD, hidden_BTD, batch, deterministic: bool, rngs: PathRngs | None):
        """Returns ``[B, T, D]`` from embedded tokens and the output of the predictor before."""
        both_BTC = jnp.concatenate([self.embed_norm(embedded_BTD), self.hidden_norm(hidden_BTD)], axis=-1)
        x_BTD = self.projection(both_BTC)
        inputs = Inputs(batch["segments"], batch["positions"], deterministic, rngs, None)
        return apply_block(self.block, self.config.remat, x_BTD, inputs)

    def judge(self, x_BTD, batch, ahead: ops.MtpInputs, ends: SharedHeads):
        """Sows loss and weight of the predictions, and if requested the weight of those equal to the main model's."""
        x_BTD = self.final_norm(x_BTD)
        loss_sum, weight_sum = ends.cross_entropy(x_BTD, batch, ahead.train)
        self.loss_sum, self.weight_sum = MtpLosses(loss_sum), MtpLosses(weight_sum)
        if ahead.accept:
            same_BT = jnp.argmax(ends.logits(x_BTD), axis=-1) == batch["chosen"]
            self.accepted_sum = MtpAcceptance(jnp.sum(same_BT * batch["weights"]).astype(weight_sum.dtype))


class MultiTokenPrediction(nnx.Module):
    """The predictors: ``depth_1``, ``depth_2``, ..."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        for name in config.ahead.names:
            setattr(self, name, Predictor(config, rngs=rngs.at(name)))

    def __call__(
        self,
        x_BTD,
        ahead: ops.MtpInputs,
        ends: SharedHeads,
        deterministic: bool,
        rngs: PathRngs | None,
        chosen_BT=None,
    ):
        """Runs each predictor, which sows its losses.

        Args:
            x_BTD: the input of the main model's final norm.
            ahead: batch, settings of the losses, and comparison with the main model.
            ends: embedding and head.
            deterministic: no dropout.
            rngs: keys for dropout.
            chosen_BT: int32 most likely tokens of the main model; needed to compare.
        """
        batch = {name: ahead.batch[name] for name in ops.ROLLED}
        batch |= {} if chosen_BT is None else {"chosen": chosen_BT}
        for name in self.config.ahead.names:
            predictor, batch = getattr(self, name), ops.roll_batch(batch, self.config.rules)
            x_BTD = predictor(ends.embed(batch["tokens"]), x_BTD, batch, deterministic, rngs)
            predictor.judge(x_BTD, batch, ahead, ends)
