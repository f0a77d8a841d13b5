"""Token embedding and the two heads.

B batch, T position, D embed, V vocab.
"""

from flax import linen as nn

from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig

__all__ = ["Embedder"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
LOGITS = ("activation_batch", "activation_length", "activation_vocab")


class Embedder(nn.Module):
    """A table that embeds tokens and, with a tied head, scores them."""

    config: ModelConfig

    def setup(self):
        shape = (self.config.vocab, self.config.embed)
        init = nn.with_logical_partitioning(ops.EMBEDDING_INIT, ("vocab", "embed"))
        self.embedding = self.param("embedding", init, shape, self.config.param_dtype)

    def encode(self, tokens_BT):
        table_VD = self.embedding.astype(self.config.compute_dtype)
        x_BTD = ops.lookup(table_VD, tokens_BT, out_axes=EMBEDDED, rules=self.config.rules)
        return ops.scale_embedding(x_BTD, self.config.embedding_scale)

    def decode(self, x_BTD):
        table_VD = self.embedding.astype(self.config.compute_dtype)
        return ops.einsum("BTD,VD->BTV", x_BTD, table_VD, out_axes=LOGITS, rules=self.config.rules)
