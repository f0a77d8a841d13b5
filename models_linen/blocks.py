"""A decoder block: attention and MLP, each after a norm and with a residual; and a cycle of blocks.

B batch, T position, D embed.
"""

from typing import ClassVar

from flax import linen as nn

from models_linen.attention import Attention
from models_linen.dropout import Dropout
from models_linen.mla import LatentAttention
from models_linen.mlp import Mlp
from models_linen.moe import Moe
from models_linen.norms import RMSNorm
from models_nnx.shared.config import FeedForward, LayerKind, ModelConfig, NormPlacement
from models_nnx.shared.sharding import constrain

__all__ = ["Block", "Cycle"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Block(nn.Module):
    """Attention, then MLP, each after a norm and optionally before another."""

    config: ModelConfig
    layer: LayerKind

    def setup(self):
        cfg = self.config
        self.attention_norm = RMSNorm(cfg)
        attention = LatentAttention if cfg.attention.latent else Attention
        self.attention = attention(cfg, self.layer.span)
        self.attention_dropout = Dropout(cfg.dropout)
        self.mlp_norm = RMSNorm(cfg)
        if self.layer.feed_forward is FeedForward.MOE:
            self.moe = Moe(cfg)
        else:
            self.mlp = Mlp(cfg)
        self.mlp_dropout = Dropout(cfg.dropout)
        if cfg.norms is NormPlacement.PRE_AND_POST:
            self.attention_post_norm = RMSNorm(cfg)
            self.mlp_post_norm = RMSNorm(cfg)

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        x_BTD = self.attend(x_BTD, segments_BT, positions_BT, deterministic, caching)
        fed_BTD = self._feed_forward(self.mlp_norm(x_BTD), segments_BT)
        return self.add_fed(x_BTD, fed_BTD, deterministic)

    def attend(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        attended_BTD = self.attention(self.attention_norm(x_BTD), segments_BT, positions_BT, caching)
        if self.config.norms is NormPlacement.PRE_AND_POST:
            attended_BTD = self.attention_post_norm(attended_BTD)
        return x_BTD + self.attention_dropout(attended_BTD, deterministic)

    def add_fed(self, x_BTD, fed_BTD, deterministic: bool):
        if self.config.norms is NormPlacement.PRE_AND_POST:
            fed_BTD = self.mlp_post_norm(fed_BTD)
        x_BTD = x_BTD + self.mlp_dropout(fed_BTD, deterministic)
        return constrain(x_BTD, EMBEDDED, self.config.rules)

    def _feed_forward(self, x_BTD, segments_BT):
        if self.layer.feed_forward is FeedForward.MOE:
            return self.moe(x_BTD, segments_BT)
        return self.mlp(x_BTD)


class Cycle(nn.Module):
    """Blocks of several kinds, one after the other: ``block_0``, ``block_1``, ..."""

    config: ModelConfig
    layers: tuple[LayerKind, ...]
    block: ClassVar[type[Block]] = Block

    def setup(self):
        for index, layer in enumerate(self.layers):
            setattr(self, f"block_{index}", self.block(self.config, layer))

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        for index in range(len(self.layers)):
            block = getattr(self, f"block_{index}")
            x_BTD = block(x_BTD, segments_BT, positions_BT, deterministic, caching)
        return x_BTD
