"""A decoder block: attention and MLP, each behind a norm and around a residual.

B batch, T position, D embed.
"""

from flax import nnx

from models_nnx.attention import Attention
from models_nnx.config import ModelConfig
from models_nnx.dropout import Dropout
from models_nnx.mlp import Mlp
from models_nnx.norms import RMSNorm
from models_nnx.rngs import PathRngs
from models_nnx.sharding import constrain

__all__ = ["Block"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Block(nnx.Module):
    """Pre-norm attention, then pre-norm MLP."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg = config
        self.attention_norm = RMSNorm(cfg, rngs=rngs.at("attention_norm"))
        self.attention = Attention(cfg, rngs=rngs.at("attention"))
        self.attention_dropout = Dropout(cfg.dropout, rngs=rngs.at("attention_dropout"))
        self.mlp_norm = RMSNorm(cfg, rngs=rngs.at("mlp_norm"))
        self.mlp = Mlp(cfg, rngs=rngs.at("mlp"))
        self.mlp_dropout = Dropout(cfg.dropout, rngs=rngs.at("mlp_dropout"))

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None):
        attended_BTD = self.attention(self.attention_norm(x_BTD), segments_BT, positions_BT)
        x_BTD = x_BTD + self.attention_dropout(attended_BTD, deterministic, rngs)
        x_BTD = x_BTD + self.mlp_dropout(self.mlp(self.mlp_norm(x_BTD)), deterministic, rngs)
        return constrain(x_BTD, EMBEDDED, self.config.rules)
