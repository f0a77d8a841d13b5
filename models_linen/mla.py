"""Multi-head latent attention: low-rank queries, keys and values, and one rotary key for all heads.

B batch, T query, S key, D embed, N heads, Q query rank, R key-value rank, H head_dim without its rotary part,
P rotary part, V width of a value.
"""

import jax.numpy as jnp

from models_linen.caching import CachedAttention
from models_linen.linear import Linear
from models_linen.norms import RMSNorm
from models_nnx.shared import ops
from models_nnx.shared.config import Caching
from models_nnx.shared.sharding import constrain

__all__ = ["LatentAttention"]

HEADS = ("activation_batch", "activation_length", "activation_heads", None)
NARROW = ("activation_batch", "activation_length", None)
GATHERED_KV = ("activation_batch", "activation_kv_length", "activation_kv_heads", None)
GATHERED_NARROW = ("activation_batch", "activation_kv_length", None)
EMBEDDED = ("activation_batch", "activation_length", "activation_embed")


class LatentAttention(CachedAttention):
    """Projects through narrow layers to query, key and value, attends inside each segment, projects back."""

    def setup(self):
        cfg, att, lat = self.config, self.config.attention, self.config.attention.latent
        assert lat is not None, "blocks choose this class by config.attention.latent"
        D, N, V = cfg.embed, att.heads, lat.value_dim
        Q, R, P = lat.query_rank, lat.key_value_rank, lat.rotary_dim
        H = att.unturned_dim
        q_up, kv_up = ("q_lora", "heads", "head_dim"), ("kv_lora", "kv_heads", "head_dim")
        out_axes = ("heads", "head_dim", "embed")
        self.query_down = Linear(cfg, "BTD,DQ->BTQ", (D, Q), ("embed", "q_lora"), NARROW)
        self.query_norm = RMSNorm(cfg, Q)
        self.query_up = Linear(cfg, "BTQ,QNH->BTNH", (Q, N, H + P), q_up, HEADS)
        self.latent = Linear(cfg, "BTD,DR->BTR", (D, R), ("embed", "kv_lora"), NARROW)
        self.latent_norm = RMSNorm(cfg, R)
        self.rotary_key = Linear(cfg, "BTD,DP->BTP", (D, P), ("embed", "head_dim"), NARROW)
        self.key_up = Linear(cfg, "BSR,RNH->BSNH", (R, N, H), kv_up, GATHERED_KV)
        self.value_up = Linear(cfg, "BSR,RNV->BSNV", (R, N, V), kv_up, GATHERED_KV)
        self.out = Linear(cfg, "BTNV,NVD->BTD", (N, V, D), out_axes, EMBEDDED)

    def __call__(self, x_BTD, segments_BT, positions_BT, caching: Caching | None = None):
        cfg, att, rope = self.config, self.config.attention, self.config.attention.rope(self.span)
        query_BTNH = self.query_up(self.query_norm(self.query_down(x_BTD)))
        split = att.unturned_dim
        turned_BTNP = ops.rotary(query_BTNH[..., split:], positions_BT, *rope)
        query_BTNH = ops.tag(jnp.concatenate([query_BTNH[..., :split], turned_BTNP], axis=-1), "query")
        latent_BSR = constrain(self.latent_norm(self.latent(x_BTD)), GATHERED_NARROW, cfg.rules)
        turned_BS1P = ops.rotary(self.rotary_key(x_BTD)[:, :, None], positions_BT, *rope)
        turned_BSP = constrain(turned_BS1P[:, :, 0], GATHERED_NARROW, cfg.rules)
        entries = {"latent": latent_BSR, "rotary_key": turned_BSP}
        entries, mask_BTS = self.recall(entries, segments_BT, positions_BT, caching)
        key_BSNH, value_BSNV = self.expand(entries["latent"], entries["rotary_key"])
        out_BTNV = ops.attention(query_BTNH, key_BSNH, value_BSNV, mask_BTS, att)
        return self.out(ops.tag(out_BTNV, "attention_out"))

    def expand(self, latent_BSR, turned_BSP):
        """Returns the keys and values of all heads; each key ends with the shared rotary key."""
        key_BSNH = self.key_up(latent_BSR)
        turned_BSNP = ops.repeat_heads(turned_BSP, key_BSNH.shape[2], GATHERED_KV, self.config.rules)
        key_BSNH = ops.tag(jnp.concatenate([key_BSNH, turned_BSNP], axis=-1), "key")
        return key_BSNH, ops.tag(self.value_up(latent_BSR), "value")
