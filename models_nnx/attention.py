"""Grouped-query attention with rotary positions.

B batch, T query, S key, D embed, N query heads, K key-value heads, H head_dim.
"""

from models_nnx.caching import CachedAttention
from models_nnx.linear import BiasedLinear, Linear
from models_nnx.norms import RMSNorm
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import Biases, Caching, ModelConfig, QueryKeyNorm, Sinks, Span
from models_nnx.shared.sharding import constrain
from models_nnx.state import param

__all__ = ["Attention"]

HEADS = ("activation_batch", "activation_length", "activation_heads", None)
KV_HEADS = ("activation_batch", "activation_length", "activation_kv_heads", None)
GATHERED_KV = ("activation_batch", "activation_kv_length", "activation_kv_heads", None)
SINK = ("activation_heads",)
EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class Attention(CachedAttention):
    """Projects to query, key and value, attends inside each segment, projects back."""

    def __init__(self, config: ModelConfig, span: Span, *, rngs: PathRngs):
        self.config, self.span = config, span
        cfg, att = config, config.attention
        D, N, K, H = cfg.embed, att.heads, att.kv_heads, att.head_dim
        q_axes, kv_axes = ("embed", "heads", "head_dim"), ("embed", "kv_heads", "head_dim")
        out_axes = ("heads", "head_dim", "embed")

        def linear(name, equation, shape, axes, out_axes):
            linear = BiasedLinear if att.biases is Biases.TRAINED else Linear
            return linear(cfg, equation, shape=shape, axes=axes, out_axes=out_axes, rngs=rngs.at(name))

        self.query = linear("query", "BTD,DNH->BTNH", (D, N, H), q_axes, HEADS)
        self.key = linear("key", "BTD,DKH->BTKH", (D, K, H), kv_axes, KV_HEADS)
        self.value = linear("value", "BTD,DKH->BTKH", (D, K, H), kv_axes, KV_HEADS)
        self.out = linear("out", "BTNH,NHD->BTD", (N, H, D), out_axes, EMBEDDED)
        if att.query_key_norm is QueryKeyNorm.HEAD:
            self.query_norm = RMSNorm(cfg, H, rngs=rngs.at("query_norm"))
            self.key_norm = RMSNorm(cfg, H, rngs=rngs.at("key_norm"))
        if att.sinks is Sinks.LEARNED:
            init = ops.SINK_INIT(rngs.draw("params"), (N,), cfg.param_dtype)
            self.sink = param(init, ("heads",))

    def __call__(self, x_BTD, segments_BT, positions_BT, caching: Caching | None = None):
        att = self.config.attention
        query_BTNH, key_BSKH = self.query(x_BTD), self.key(x_BTD)
        if att.query_key_norm is QueryKeyNorm.HEAD:
            query_BTNH, key_BSKH = self.query_norm(query_BTNH), self.key_norm(key_BSKH)
        query_BTNH = ops.tag(ops.rotary(query_BTNH, positions_BT, *att.rope(self.span)), "query")
        key_BSKH = ops.tag(ops.rotary(key_BSKH, positions_BT, *att.rope(self.span)), "key")
        value_BSKH = ops.tag(self.value(x_BTD), "value")
        key_BSKH, value_BSKH = (constrain(x, GATHERED_KV, self.config.rules) for x in (key_BSKH, value_BSKH))
        entries = {"key": key_BSKH, "value": value_BSKH}
        entries, mask_BTS = self.recall(entries, segments_BT, positions_BT, caching)
        sink_N = constrain(self.sink[...], SINK, self.config.rules) if att.sinks is Sinks.LEARNED else None
        out_BTNH = ops.attention(query_BTNH, entries["key"], entries["value"], mask_BTS, att, sink_N)
        return self.out(ops.tag(out_BTNH, "attention_out"))
