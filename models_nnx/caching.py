"""Caches of both kinds of attention during decoding. B batch, T query, S key."""

from flax import nnx

from models_nnx.shared import ops
from models_nnx.shared.config import CacheUse, Caching, ModelConfig, Span
from models_nnx.shared.sharding import constrain

__all__ = ["CachedAttention"]

GATHERED = ("activation_batch", "activation_kv_length")


class CachedAttention(nnx.Module):
    """Attention whose keys and values may come from a cache, in Variables of type ``nnx.Cache``."""

    config: ModelConfig
    span: Span

    def recall(self, entries, segments_BT, positions_BT, caching: Caching | None):
        """Returns the entries that queries attend to, and ``mask_BTS``; writes the cache if ``caching`` is given.

        Args:
            entries: ``{name: [B, T, ...]}`` of these tokens.
            segments_BT: their segments.
            positions_BT: their positions.
            caching: None for a forward pass without caches.
        """
        window = self.config.attention.reach(self.span)
        if caching is not None and caching.use is CacheUse.DECODE:
            cache = {name: getattr(self, f"cached_{name}")[...] for name in (*entries, "positions")}
            cache = ops.write_cache(cache, entries, positions_BT)
            self._store(cache)
            return cache, ops.cache_mask(cache["positions"], positions_BT, window)
        if caching is not None:
            self._store(ops.fill_cache(entries, segments_BT, caching.slots(window)))
        segments_BS = constrain(segments_BT, GATHERED, self.config.rules)
        return entries, ops.causal_segment_mask(segments_BT, segments_BS, window)

    def _store(self, cache):
        for name, value in cache.items():
            setattr(self, f"cached_{name}", nnx.Cache(value))
