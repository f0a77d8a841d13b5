"""Gated MLP.

B batch, T position, D embed, F hidden.
"""

from flax import linen as nn

from models_linen.linear import Linear
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig

__all__ = ["Mlp"]

HIDDEN = ("activation_batch", "activation_length", "activation_mlp")
EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Mlp(nn.Module):
    """``down(activation(gate(x)) * up(x))``."""

    config: ModelConfig

    def setup(self):
        cfg, D, F = self.config, self.config.embed, self.config.mlp.hidden
        self.gate = Linear(cfg, "BTD,DF->BTF", (D, F), ("embed", "mlp"), HIDDEN)
        self.up = Linear(cfg, "BTD,DF->BTF", (D, F), ("embed", "mlp"), HIDDEN)
        self.down = Linear(cfg, "BTF,FD->BTD", (F, D), ("mlp", "embed"), EMBEDDED)

    def __call__(self, x_BTD):
        hidden_BTF = ops.gated_activation(self.gate(x_BTD), self.up(x_BTD), self.config.mlp.activation)
        return self.down(ops.tag(hidden_BTF, "mlp_hidden"))
