"""Sampling of tokens, and the number of keys that a cache holds: for any sizes, both flavours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from models_nnx.shared import ops
from models_nnx.shared.config import CacheUse, Caching, DecodeConfig

ROWS, VOCAB = 256, 40


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_rows_with_the_same_logits_draw_separate_tokens(seed, temperature):
    """Each row draws from the softmax at the temperature, independent of its neighbour."""
    logits = jax.random.normal(jax.random.key(100 + seed), (VOCAB,))
    decode = DecodeConfig(length=8, temperature=temperature)
    chosen = ops.choose_token(jnp.broadcast_to(logits, (ROWS, VOCAB)), decode, jax.random.key(seed))
    assert chosen.shape == (ROWS, 1) and chosen.dtype == jnp.int32
    chosen = np.asarray(chosen)[:, 0]
    share = np.asarray(jax.nn.softmax(logits / temperature), np.float64)
    counts = np.bincount(chosen, minlength=VOCAB)
    assert scipy.stats.chisquare(counts, ROWS * share / share.sum()).pvalue > 1e-4
    equal, expected = np.sum(chosen[1:] == chosen[:-1]), np.sum(share**2)
    assert scipy.stats.binomtest(int(equal), ROWS - 1, expected).pvalue > 1e-4


@pytest.mark.parametrize("row", range(5))
@pytest.mark.parametrize("temperature", [None, 0.7])
def test_the_token_of_a_row_depends_on_the_logits_of_that_row_only(row, temperature):
    key = jax.random.key(row)
    logits = jax.random.normal(key, (5, VOCAB))
    other = jnp.where(jnp.arange(5)[:, None] == row, logits[::-1] * 2 + 1, logits)
    decode = DecodeConfig(length=8, temperature=temperature)
    before, after = (np.asarray(ops.choose_token(x, decode, key)) for x in (logits, other))
    np.testing.assert_array_equal(np.delete(before, row, 0), np.delete(after, row, 0))
    if temperature is None:
        np.testing.assert_array_equal(before[:, 0], np.argmax(logits, axis=-1))


# --- caches ---

LONGEST = 12


@pytest.mark.parametrize("window", [None, 1, 2, 5, LONGEST - 1, LONGEST, LONGEST + 1])
def test_a_cache_has_a_slot_for_each_key_that_a_query_sees_and_none_that_no_query_sees(window):
    ones = jnp.ones((1, LONGEST), jnp.int32)
    seen = np.asarray(ops.causal_segment_mask(ones, ones, window))[0].sum(axis=-1)
    slots = [Caching(use=CacheUse.DECODE, length=length).slots(window) for length in range(1, LONGEST + 1)]
    assert slots == [seen[:length].max() for length in range(1, LONGEST + 1)]


@pytest.mark.parametrize("window, start", [(1, 1), (1, 6), (2, 5), (3, 1), (4, 6), (5, 2), (6, 6)])
def test_a_ring_holds_the_window_and_every_slot_of_it_is_read(window, start):
    """After as many tokens as it has slots, for any prompt; the keys are those of the last positions."""
    slots = Caching(use=CacheUse.DECODE, length=LONGEST).slots(window)
    positions, segments = ops.prompt_layout(jnp.zeros((1, 6), jnp.int32), jnp.asarray([start]))
    cache = ops.fill_cache({"key": positions[:, :, None, None]}, segments, slots)
    for position in range(start, start + window):
        here = jnp.asarray([[position]])
        cache = ops.write_cache(cache, {"key": here[:, :, None, None]}, here)
    assert ops.cache_mask(cache["positions"], here, window).all()
    last = set(range(position - window + 1, position + 1))
    for found in (cache["positions"], cache["key"]):
        assert set(np.asarray(found).ravel().tolist()) == last
