"""The language model: embedding, decoder, final norm, head.

B batch, T position, D embed, V vocab.
"""

from flax import linen as nn

from models_linen.decoder import Decoder
from models_linen.embeddings import LOGITS, Embedder
from models_linen.linear import Linear
from models_linen.norms import RMSNorm
from models_nnx import ops
from models_nnx.config import Head, ModelConfig

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

    def __call__(self, tokens_BT, segments_BT, positions_BT, deterministic: bool = True, caching=None):
        """Returns logits ``[B, T, V]`` in the compute dtype.

        Args:
            tokens_BT: int32 in [0, V).
            segments_BT: int32 document of each token, from 1; 0 is padding.
            positions_BT: int32 position of each token in its document.
            deterministic: False needs ``rngs={"dropout": key}``.
            caching: `Caching`, static; None for a forward pass without caches.
        """
        x_BTD = self._hidden(tokens_BT, segments_BT, positions_BT, deterministic, caching)
        untied = self.config.head is Head.UNTIED
        logits_BTV = self.head(x_BTD) if untied else self.embedder.decode(x_BTD)
        return ops.soft_cap(logits_BTV, self.config.logits_soft_cap)

    def before_head(self, tokens_BT, segments_BT, positions_BT, deterministic: bool = True):
        """Returns what the head multiplies, ``[B, T, D]`` and ``[D, V]``, for a loss that never makes all logits.

        Args:
            tokens_BT, segments_BT, positions_BT, deterministic: as for `__call__`.
        """
        x_BTD = self._hidden(tokens_BT, segments_BT, positions_BT, deterministic)
        untied = self.config.head is Head.UNTIED
        kernel_DV = self.head.kernel if untied else self.embedder.embedding.T
        return x_BTD, kernel_DV.astype(self.config.compute_dtype)

    def _hidden(self, tokens_BT, segments_BT, positions_BT, deterministic: bool, caching=None):
        x_BTD = self.embedder.encode(tokens_BT)
        x_BTD = self.decoder(x_BTD, segments_BT, positions_BT, deterministic, caching)
        return self.final_norm(x_BTD)
