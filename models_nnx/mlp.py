"""Gated MLP.

B batch, T position, D embed, F hidden.
"""

from flax import nnx

from models_nnx.linear import Linear
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig

__all__ = ["Mlp"]

HIDDEN = ("activation_batch", "activation_length", "activation_mlp")
EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Mlp(nnx.Module):
    """``down(activation(gate(x)) * up(x))``."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg, D, F = config, config.embed, config.mlp.hidden
        in_axes, down_axes = ("embed", "mlp"), ("mlp", "embed")
        self.gate = Linear(
            cfg, "BTD,DF->BTF", shape=(D, F), axes=in_axes, out_axes=HIDDEN, rngs=rngs.at("gate")
        )
        self.up = Linear(cfg, "BTD,DF->BTF", shape=(D, F), axes=in_axes, out_axes=HIDDEN, rngs=rngs.at("up"))
        self.down = Linear(
            cfg, "BTF,FD->BTD", shape=(F, D), axes=down_axes, out_axes=EMBEDDED, rngs=rngs.at("down")
        )

    def __call__(self, x_BTD):
        hidden_BTF = ops.gated_activation(self.gate(x_BTD), self.up(x_BTD), self.config.mlp.activation)
        return self.down(ops.tag(hidden_BTF, "mlp_hidden"))
