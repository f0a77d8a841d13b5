"""Caches of keys and values: full, or a ring of the window's size; indexed by position, so that rows may differ.

B row of the batch, T position of a prompt, S slot of a cache. A cache is ``{name: [B, S, ...]}`` with ``positions``,
-1 for an empty slot. Position p is stored in slot p % S: the full cache is the ring that never wraps.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models_nnx.shared.config import DecodeConfig
from models_nnx.shared.sharding import Rules, out_sharding, place

__all__ = [
    "DecodeState",
    "cache_mask",
    "choose_token",
    "fill_cache",
    "insert_row",
    "last_logits",
    "prompt_layout",
    "write_cache",
]

Cache = dict[str, jax.Array]
POSITIONS = "positions"
RANKS = {
    "cached_positions": 2,
    "cached_key": 4,
    "cached_value": 4,
    "cached_latent": 3,
    "cached_rotary_key": 3,
}
"""Ranks of the leaves of one layer; a stack adds a leading axis of layers."""


class DecodeState(NamedTuple):
    """State of rows that are being decoded.

    Args:
        tokens_B1: the token that each row reads next.
        positions_B1: its position.
        cache: the layers' caches, a tree.
    """

    tokens_B1: jax.Array
    positions_B1: jax.Array
    cache: Any


def prompt_layout(tokens_BT: jax.Array, lengths_B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns positions and segments of prompts that start at the left: one document, then padding."""
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32), tokens_BT.shape)
    return positions_BT, (positions_BT < lengths_B[:, None]).astype(jnp.int32)


def last_logits(logits_BTV: jax.Array, lengths_B: jax.Array, rules: Rules) -> jax.Array:
    """Returns ``[B, V]``, the logits of the last token of each prompt.

    Args:
        logits_BTV: logits of the prompts; gathered along T on an explicit mesh, because JAX has no rule without that.
        lengths_B: lengths of the prompts.
        rules: ordered logical axis rules.
    """
    whole = out_sharding(("activation_batch", None, "activation_vocab"), logits_BTV.shape, rules)
    logits_BTV = logits_BTV if whole is None else place(logits_BTV, whole)
    return jnp.take_along_axis(logits_BTV, lengths_B[:, None, None] - 1, axis=1)[:, 0]


def fill_cache(entries: Mapping[str, jax.Array], segments_BT: jax.Array, slots: int) -> Cache:
    """Returns the cache after a prompt: each slot has the last position that maps to it.

    Args:
        entries: ``{name: [B, T, ...]}`` of the prompt.
        segments_BT: 1 on the prompt, which starts at the left; 0 on padding.
        slots: S.
    """
    last_B1 = jnp.sum(segments_BT != 0, axis=1, dtype=jnp.int32)[:, None] - 1
    slot_1S = jnp.arange(slots, dtype=jnp.int32)[None]
    positions_BS = last_B1 - jnp.mod(last_B1 - slot_1S, slots)
    source_BS = jnp.clip(positions_BS, 0, segments_BT.shape[1] - 1)
    cache = {
        name: jnp.take_along_axis(x, source_BS.reshape(*source_BS.shape, *[1] * (x.ndim - 2)), axis=1)
        for name, x in entries.items()
    }
    return {**cache, POSITIONS: jnp.where(positions_BS < 0, -1, positions_BS)}


def write_cache(cache: Mapping[str, jax.Array], entries: Mapping[str, jax.Array], positions_B1) -> Cache:
    """Returns the cache with one more position; in a full ring it replaces the oldest.

    Args:
        cache: the cache before.
        entries: ``{name: [B, 1, ...]}`` of the new token.
        positions_B1: its position.
    """
    slots = cache[POSITIONS].shape[1]
    here_BS = jnp.mod(positions_B1, slots) == jnp.arange(slots, dtype=jnp.int32)[None]

    def write(old, new):
        return jnp.where(here_BS.reshape(*here_BS.shape, *[1] * (old.ndim - 2)), new.astype(old.dtype), old)

    entries = {**entries, POSITIONS: positions_B1}
    return {name: write(old, entries[name]) for name, old in cache.items()}


def cache_mask(cached_BS: jax.Array, positions_BT: jax.Array, window: int | None) -> jax.Array:
    """Returns ``[B, T, S]``, True where a query at ``positions_BT`` sees a key; see `causal_segment_mask`."""
    distance_BTS = positions_BT[:, :, None] - cached_BS[:, None, :]
    mask_BTS = (cached_BS >= 0)[:, None, :] & (distance_BTS >= 0)
    return mask_BTS if window is None else mask_BTS & (distance_BTS < window)


def insert_row(state: DecodeState, row: DecodeState, slot: int | jax.Array) -> DecodeState:
    """Returns ``state`` with row ``slot`` replaced by the only row of ``row``; both have caches of the same length."""

    def put(path, old, new):
        name = next(name for name in RANKS if name in jax.tree_util.keystr(path))
        axis = old.ndim - RANKS[name]
        return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), slot, axis)

    return DecodeState(
        tokens_B1=jax.lax.dynamic_update_slice_in_dim(state.tokens_B1, row.tokens_B1, slot, 0),
        positions_B1=jax.lax.dynamic_update_slice_in_dim(state.positions_B1, row.positions_B1, slot, 0),
        cache=jax.tree_util.tree_map_with_path(put, state.cache, row.cache),
    )


def choose_token(logits_BV: jax.Array, decode: DecodeConfig, key: jax.Array | None) -> jax.Array:
    """Returns ``[B, 1]`` int32: the most likely token, or one drawn with ``key`` at a temperature.

    Raises:
        ValueError: a temperature without a key.
    """
    if decode.temperature is None:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)[:, None]
    if key is None:
        raise ValueError(
            "choose_token key: got None with a temperature, expected a key; pass one to generate"
        )
    scaled_BV = logits_BV.astype(jnp.float32) / decode.temperature
    return jax.random.categorical(key, scaled_BV).astype(jnp.int32)[:, None]
