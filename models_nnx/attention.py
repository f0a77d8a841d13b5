"""Grouped-query attention with rotary positions.

B batch, T query, S key, D embed, N query heads, K key-value heads, H head_dim.
"""

from flax import nnx

from models_nnx import ops
from models_nnx.config import ModelConfig, Span
from models_nnx.linear import Linear
from models_nnx.rngs import PathRngs
from models_nnx.sharding import constrain

__all__ = ["Attention"]

HEADS = ("activation_batch", "activation_length", "activation_heads", None)
KV_HEADS = ("activation_batch", "activation_length", "activation_kv_heads", None)
GATHERED_KV = ("activation_batch", "activation_kv_length", "activation_kv_heads", None)
GATHERED = ("activation_batch", "activation_kv_length")
EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Attention(nnx.Module):
    """Projects to query, key and value, attends inside each segment, projects back."""

    def __init__(self, config: ModelConfig, span: Span, *, rngs: PathRngs):
        self.config, self.span = config, span
        cfg, att = config, config.attention
        D, N, K, H = cfg.embed, att.heads, att.kv_heads, att.head_dim
        q_axes, kv_axes = ("embed", "heads", "head_dim"), ("embed", "kv_heads", "head_dim")
        out_axes = ("heads", "head_dim", "embed")
        self.query = Linear(
            cfg, "BTD,DNH->BTNH", shape=(D, N, H), axes=q_axes, out_axes=HEADS, rngs=rngs.at("query")
        )
        self.key = Linear(
            cfg, "BTD,DKH->BTKH", shape=(D, K, H), axes=kv_axes, out_axes=KV_HEADS, rngs=rngs.at("key")
        )
        self.value = Linear(
            cfg, "BTD,DKH->BTKH", shape=(D, K, H), axes=kv_axes, out_axes=KV_HEADS, rngs=rngs.at("value")
        )
        self.out = Linear(
            cfg, "BTNH,NHD->BTD", shape=(N, H, D), axes=out_axes, out_axes=EMBEDDED, rngs=rngs.at("out")
        )

    def __call__(self, x_BTD, segments_BT, positions_BT):
        att = self.config.attention
        query_BTNH = ops.rotary(self.query(x_BTD), positions_BT, att.theta(self.span))
        key_BSKH = ops.rotary(self.key(x_BTD), positions_BT, att.theta(self.span))
        query_BTNH = ops.tag(query_BTNH, "query")
        key_BSKH = ops.tag(key_BSKH, "key")
        value_BSKH = ops.tag(self.value(x_BTD), "value")
        key_BSKH, value_BSKH = (constrain(x, GATHERED_KV, self.config.rules) for x in (key_BSKH, value_BSKH))
        segments_BS = constrain(segments_BT, GATHERED, self.config.rules)
        mask_BTS = ops.causal_segment_mask(segments_BT, segments_BS, att.reach(self.span))
        out_BTNH = ops.attention(query_BTNH, key_BSKH, value_BSKH, mask_BTS, att.kernel)
        return self.out(ops.tag(out_BTNH, "attention_out"))
