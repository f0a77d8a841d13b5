"""A decoder block: attention and MLP, each after a norm and with a residual; and a cycle of blocks.

B batch, T position, D embed.
"""

from typing import ClassVar

from flax import nnx

from models_nnx.attention import Attention
from models_nnx.dropout import Dropout
from models_nnx.mla import LatentAttention
from models_nnx.mlp import Mlp
from models_nnx.moe import Moe
from models_nnx.norms import RMSNorm
from models_nnx.rngs import PathRngs
from models_nnx.shared.config import FeedForward, LayerKind, ModelConfig, NormPlacement
from models_nnx.shared.sharding import constrain

__all__ = ["Block", "Cycle"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Block(nnx.Module):
    """Attention, then MLP, each after a norm and optionally before another."""

    def __init__(self, config: ModelConfig, layer: LayerKind, *, rngs: PathRngs):
        self.config, self.layer = config, layer
        cfg = config
        self.attention_norm = RMSNorm(cfg, rngs=rngs.at("attention_norm"))
        attention = LatentAttention if cfg.attention.latent else Attention
        self.attention = attention(cfg, layer.span, rngs=rngs.at("attention"))
        self.attention_dropout = Dropout(cfg.dropout, rngs=rngs.at("attention_dropout"))
        self.mlp_norm = RMSNorm(cfg, rngs=rngs.at("mlp_norm"))
        if layer.feed_forward is FeedForward.MOE:
            self.moe = Moe(cfg, rngs=rngs.at("moe"))
        else:
            self.mlp = Mlp(cfg, rngs=rngs.at("mlp"))
        self.mlp_dropout = Dropout(cfg.dropout, rngs=rngs.at("mlp_dropout"))
        if cfg.norms is NormPlacement.PRE_AND_POST:
            self.attention_post_norm = RMSNorm(cfg, rngs=rngs.at("attention_post_norm"))
            self.mlp_post_norm = RMSNorm(cfg, rngs=rngs.at("mlp_post_norm"))

    def __call__(
        self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None, caching=None
    ):
        x_BTD = self.attend(x_BTD, segments_BT, positions_BT, deterministic, rngs, caching)
        fed_BTD = self._feed_forward(self.mlp_norm(x_BTD), segments_BT)
        return self.add_fed(x_BTD, fed_BTD, deterministic, rngs)

    def attend(
        self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None, caching=None
    ):
        attended_BTD = self.attention(self.attention_norm(x_BTD), segments_BT, positions_BT, caching)
        if self.config.norms is NormPlacement.PRE_AND_POST:
            attended_BTD = self.attention_post_norm(attended_BTD)
        return x_BTD + self.attention_dropout(attended_BTD, deterministic, rngs)

    def add_fed(self, x_BTD, fed_BTD, deterministic: bool, rngs: PathRngs | None):
        if self.config.norms is NormPlacement.PRE_AND_POST:
            fed_BTD = self.mlp_post_norm(fed_BTD)
        x_BTD = x_BTD + self.mlp_dropout(fed_BTD, deterministic, rngs)
        return constrain(x_BTD, EMBEDDED, self.config.rules)

    def _feed_forward(self, x_BTD, segments_BT):
        if self.layer.feed_forward is FeedForward.MOE:
            return self.moe(x_BTD, segments_BT)
        return self.mlp(x_BTD)


class Cycle(nnx.Module):
    """Blocks of several kinds, one after the other: ``block_0``, ``block_1``, ..."""

    block: ClassVar[type[Block]] = Block

    def __init__(self, config: ModelConfig, layers: tuple[LayerKind, ...], *, rngs: PathRngs):
        self.config, self.layers = config, layers
        for index, layer in enumerate(layers):
            setattr(self, f"block_{index}", self.block(config, layer, rngs=rngs.at(f"block_{index}")))

    def __call__(
        self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None, caching=None
    ):
        for index in range(len(self.layers)):
            block = getattr(self, f"block_{index}")
            x_BTD = block(x_BTD, segments_BT, positions_BT, deterministic, rngs, caching)
        return x_BTD
