"""The language model: embedding, decoder, final norm, head.

B batch, T position, D embed, V vocab.
"""

import dataclasses

import jax.numpy as jnp
from flax import linen as nn

from models_linen.decoder import Decoder
from models_linen.embeddings import EMBEDDED, LOGITS, Embedder
from models_linen.linear import Linear
from models_linen.mtp import MultiTokenPrediction, SharedHeads
from models_linen.norms import RMSNorm
from models_nnx.shared import ops
from models_nnx.shared.config import Head, ModelConfig, TrainConfig

__all__ = ["LanguageModel"]


class LanguageModel(nn.Module):
    """Maps packed tokens to next-token logits."""

    config: ModelConfig

    def setup(self):
        cfg = self.config
        self.embedder = Embedder(cfg)
        self.decoder = Decoder(cfg)
        self.final_norm = RMSNorm(cfg)
        if cfg.head is Head.UNTIED:
            self.head = Linear(cfg, "BTD,DV->BTV", (cfg.embed, cfg.vocab), ("embed", "vocab"), LOGITS)
        if cfg.mtp:
            self.mtp = MultiTokenPrediction(cfg)

    def __call__(self, tokens_BT, segments_BT, positions_BT, deterministic: bool = True, caching=None):
        """Returns logits ``[B, T, V]`` in the compute dtype.

        Args:
            tokens_BT: int32 in [0, V).
            segments_BT: int32 document of each token, from 1; 0 is padding.
            positions_BT: int32 position of each token in its document.
            deterministic: False needs ``rngs={"dropout": key}``.
            caching: `Caching`, static; None for a forward pass without caches.
        """
        x_BTD, normed_BTD = self._hidden(tokens_BT, segments_BT, positions_BT, deterministic, caching)
        if self.is_initializing():  # the predictors create their parameters
            batch = dict.fromkeys(ops.ROLLED, tokens_BT)
            self._predict(x_BTD, ops.MtpInputs(batch, TrainConfig()), deterministic)
        return self._logits(normed_BTD)

    def logits_with_mtp(self, ahead: ops.MtpInputs, deterministic: bool = True):
        """Returns the logits of a batch; predictors of further tokens, if there are any, sow their losses.

        Args:
            ahead: the batch, and settings of the predictors.
            deterministic: as for `__call__`.
        """
        inputs = (ahead.batch["tokens"], ahead.batch["segments"], ahead.batch["positions"])
        x_BTD, normed_BTD = self._hidden(*inputs, deterministic)
        logits_BTV = self._logits(normed_BTD)
        self._predict(x_BTD, ahead, deterministic, logits_BTV)
        return logits_BTV

    def pre_logits(self, ahead: ops.MtpInputs, deterministic: bool = True):
        """Returns the head's operands, ``[B, T, D]`` and ``[D, V]``, for a loss that never holds all logits.

        Args:
            ahead, deterministic: as for `logits_with_mtp`.
        """
        inputs = (ahead.batch["tokens"], ahead.batch["segments"], ahead.batch["positions"])
        x_BTD, normed_BTD = self._hidden(*inputs, deterministic)
        self._predict(x_BTD, ahead, deterministic)
        return normed_BTD, self._kernel()

    def _hidden(self, tokens_BT, segments_BT, positions_BT, deterministic: bool, caching=None):
        x_BTD = self.embedder.encode(tokens_BT)
        x_BTD = self.decoder(x_BTD, segments_BT, positions_BT, deterministic, caching)
        x_BTD = ops.require_placed(x_BTD, EMBEDDED, self.config.rules, "what the decoder hands to the head")
        return x_BTD, self.final_norm(x_BTD)

    def _logits(self, x_BTD):
        untied = self.config.head is Head.UNTIED
        logits_BTV = self.head(x_BTD) if untied else self.embedder.decode(x_BTD)
        return ops.soft_cap(logits_BTV, self.config.logits_soft_cap)

    def _kernel(self):
        untied = self.config.head is Head.UNTIED
        kernel_DV = self.head.kernel if untied else self.embedder.embedding.T
        return kernel_DV.astype(self.config.compute_dtype)

    def _predict(self, x_BTD, ahead: ops.MtpInputs, deterministic: bool, logits_BTV=None):
        if self.config.mtp:
            ends = SharedHeads(self.embedder.encode, self._cross_entropy, self._logits)
            chosen_BT = None
            if ahead.accept and logits_BTV is not None:
                chosen_BT = jnp.argmax(logits_BTV, axis=-1)
            self.mtp(x_BTD, ahead, ends, deterministic, chosen_BT)

    def _cross_entropy(self, x_BTD, batch, train: TrainConfig):
        if train.vocab_tiles == 1:
            return ops.cross_entropy(self._logits(x_BTD), batch["targets"], batch["weights"], z_loss=0.0)
        train = dataclasses.replace(train, z_loss=0.0)
        return ops.tiled_cross_entropy(x_BTD, self._kernel(), batch, train, self.config)
