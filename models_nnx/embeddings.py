"""Token embedding and the two heads.

B batch, T position, D embed, V vocab.
"""

from flax import nnx

from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig
from models_nnx.state import param

__all__ = ["Embedder"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
LOGITS = ("activation_batch", "activation_length", "activation_vocab")


class Embedder(nnx.Module):
    """A table that embeds tokens and, with a tied head, scores them."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        shape = (config.vocab, config.embed)
        init = ops.EMBEDDING_INIT
        self.embedding = param(init(rngs.draw("params"), shape, config.param_dtype), ("vocab", "embed"))

    def encode(self, tokens_BT):
        table_VD = self.embedding.astype(self.config.compute_dtype)
        x_BTD = ops.lookup(table_VD, tokens_BT, out_axes=EMBEDDED, rules=self.config.rules)
        return ops.scale_embedding(x_BTD, self.config.embedding_scale)

    def decode(self, x_BTD):
        table_VD = self.embedding.astype(self.config.compute_dtype)
        return ops.einsum("BTD,VD->BTV", x_BTD, table_VD, out_axes=LOGITS, rules=self.config.rules)
