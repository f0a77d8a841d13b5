"""The language model: embedding, decoder, final norm, head.

B batch, T position, D embed, V vocab.
"""

from flax import nnx

from models_nnx import ops
from models_nnx.config import Head, ModelConfig
from models_nnx.decoder import Decoder
from models_nnx.embeddings import LOGITS, Embedder
from models_nnx.linear import Linear
from models_nnx.norms import RMSNorm
from models_nnx.rngs import PathRngs

__all__ = ["LanguageModel"]


class LanguageModel(nnx.Module):
    """Maps packed tokens to next-token logits."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg = config
        self.embedder = Embedder(cfg, rngs=rngs.at("embedder"))
        self.decoder = Decoder(cfg, rngs=rngs.at("decoder"))
        self.final_norm = RMSNorm(cfg, rngs=rngs.at("final_norm"))
        if cfg.head is Head.UNTIED:
            shape, axes = (cfg.embed, cfg.vocab), ("embed", "vocab")
            self.head = Linear(
                cfg, "BTD,DV->BTV", shape=shape, axes=axes, out_axes=LOGITS, rngs=rngs.at("head")
            )

    def __call__(
        self, tokens_BT, segments_BT, positions_BT, deterministic: bool = True, rngs=None, caching=None
    ):
        """Returns logits ``[B, T, V]`` in the compute dtype.

        Args:
            tokens_BT: int32 in [0, V).
            segments_BT: int32 document of each token, from 1; 0 is padding.
            positions_BT: int32 position of each token in its document.
            deterministic: False needs ``rngs`` with a stream ``dropout``.
            rngs: `PathRngs` at the root of the model.
            caching: `Caching`, static; None for a forward pass without caches.
        """
        x_BTD = self._hidden(tokens_BT, segments_BT, positions_BT, deterministic, rngs, caching)
        untied = self.config.head is Head.UNTIED
        logits_BTV = self.head(x_BTD) if untied else self.embedder.decode(x_BTD)
        return ops.soft_cap(logits_BTV, self.config.logits_soft_cap)

    def before_head(self, tokens_BT, segments_BT, positions_BT, deterministic: bool = True, rngs=None):
        """Returns what the head multiplies, ``[B, T, D]`` and ``[D, V]``, for a loss that never makes all logits.

        Args:
            tokens_BT, segments_BT, positions_BT, deterministic, rngs: as for `__call__`.
        """
        x_BTD = self._hidden(tokens_BT, segments_BT, positions_BT, deterministic, rngs)
        untied = self.config.head is Head.UNTIED
        kernel_DV = self.head.kernel[...] if untied else self.embedder.embedding[...].T
        return x_BTD, kernel_DV.astype(self.config.compute_dtype)

    def _hidden(self, tokens_BT, segments_BT, positions_BT, deterministic: bool, rngs, caching=None):
        x_BTD = self.embedder.encode(tokens_BT)
        x_BTD = self.decoder(x_BTD, segments_BT, positions_BT, deterministic, rngs, caching)
        return self.final_norm(x_BTD)
