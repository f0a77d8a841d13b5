"""The operations that families add, each against float64 NumPy."""

import jax.numpy as jnp
import numpy as np
import oracle_families as oracle
import oracle_ops
import pytest

from models_nnx.shared import ops
from models_nnx.shared.config import (
    AttentionConfig,
    Boundaries,
    EmbeddingScale,
    LinearScaling,
    NormScale,
    YarnScaling,
)

pytestmark = pytest.mark.usefixtures("x64", "quick")
RNG = np.random.default_rng(17)
B, T, N, K, H, W = 3, 13, 6, 2, 10, 4
SEGMENTS = np.repeat([[1, 2, 0], [1, 2, 3], [1, 1, 1]], [6, 5, 2], axis=1)
POSITIONS = np.asarray([[int((row[:t] == row[t]).sum()) for t in range(T)] for row in SEGMENTS])


def draw(*shape, scale=1.0):
    return RNG.normal(size=shape) * scale


def close(got, expected, rtol=1e-12):
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_a_norm_stored_as_its_offset_from_one():
    x, scale = draw(B, T, H), draw(H)
    got = ops.rms_norm(jnp.asarray(x), jnp.asarray(scale), 0.01, NormScale.OFFSET)
    close(got, oracle_ops.rms_norm(x, 1 + scale, 0.01))
    assert (ops.norm_init(NormScale.OFFSET)(None, (3,)) == 0).all()
    assert (ops.norm_init(NormScale.DIRECT)(None, (3,)) == 1).all()


@pytest.mark.parametrize("window", [1, 2, W, T, None])
def test_a_query_sees_its_window_and_its_document(window):
    got = np.asarray(ops.causal_segment_mask(jnp.asarray(SEGMENTS), jnp.asarray(SEGMENTS), window))
    for b, t, s in np.ndindex(B, T, T):
        near = window is None or t - s < window
        assert got[b, t, s] == (s <= t and near and SEGMENTS[b, t] == SEGMENTS[b, s])
    assert got.sum(axis=-1).max() == min(window or T, T)


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        LinearScaling(factor=8.0),
        YarnScaling(factor=4.0, original_length=64, beta_fast=3.0, beta_slow=0.5, angle_factor=1.3),
        YarnScaling(factor=40.0, original_length=90, boundaries=Boundaries.EXACT, beta_fast=2.0),
    ],
    ids=["plain", "linear", "yarn-whole", "yarn-exact"],
)
def test_rotary_with_stretched_wavelengths(scaling):
    x, positions = draw(B, T, N, 16), RNG.integers(0, 4_000, (B, T))
    got = ops.rotary(jnp.asarray(x), jnp.asarray(positions), 500.0, scaling)
    close(got, oracle.rotary(x, positions, 500.0, scaling), rtol=1e-10)


def test_yarn_keeps_short_wavelengths_and_stretches_long_ones():
    stretch = YarnScaling(factor=32.0, original_length=4_096).stretch(32, 150_000.0)
    assert stretch[0] == 1 and stretch[-1] == 32 and list(stretch) == sorted(stretch)
    assert len({round(value, 9) for value in stretch}) > 4


def test_a_soft_cap_bounds_and_bends():
    x = draw(5, 7, scale=9.0)
    close(ops.soft_cap(jnp.asarray(x), 4.0), oracle.soft_cap(x, 4.0))
    assert ops.soft_cap(x, None) is x
    assert ops.soft_cap(jnp.ones(3, "bfloat16"), 2.0).dtype == jnp.bfloat16


@pytest.mark.parametrize("soft_cap", [None, 2.0])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("width", [H, 4])
def test_attention_with_caps_sinks_windows_and_narrow_values(soft_cap, sinks, width):
    config = AttentionConfig(heads=N, kv_heads=K, head_dim=H, soft_cap=soft_cap, query_scalar=23.0)
    query, key, value = draw(B, T, N, H, scale=4), draw(B, T, K, H), draw(B, T, K, width)
    sink = draw(N) if sinks else None
    mask = ops.causal_segment_mask(jnp.asarray(SEGMENTS), jnp.asarray(SEGMENTS), W)
    got = ops.attention(
        *map(jnp.asarray, (query, key, value)), mask, config, None if sink is None else jnp.asarray(sink)
    )
    close(got, oracle.attention((query, key, value), SEGMENTS, config, W, sink), rtol=1e-11)


def test_a_bias_has_the_axes_that_the_output_keeps():
    assert ops.bias_shape("BTD,DNH->BTNH", (5, 6, 7)) == (6, 7)
    assert ops.bias_axes("BTNH,NHD->BTD", ("heads", "head_dim", "embed")) == ("norm",)
    x, bias = draw(B, T, N, H), draw(N, H)
    close(ops.add_bias(jnp.asarray(x), jnp.asarray(bias), (None,) * x.ndim, ()), x + bias[None, None])


def test_embedded_tokens_are_scaled_by_the_root_of_their_width():
    x = draw(B, T, 20)
    close(ops.scale_embedding(jnp.asarray(x), EmbeddingScale.ROOT), x * 20**0.5)
    assert ops.scale_embedding(x, EmbeddingScale.NONE) is x


@pytest.mark.slow
@pytest.mark.parametrize("slots", [4, 9])
def test_a_cache_holds_the_last_positions_of_each_row(slots):
    """Filled by a prompt and extended token by token, against a dict that forgets the oldest."""
    lengths, total = np.asarray([9, 5, 1]), 12
    entries = {"key": draw(B, total, K, H), "latent": draw(B, total, 3)}
    segments = (np.arange(9) < lengths[:, None]).astype(np.int32)
    prompt = {name: jnp.asarray(x[:, :9]) for name, x in entries.items()}
    cache = ops.fill_cache(prompt, jnp.asarray(segments), slots)
    for step in range(4):
        ends = lengths + step
        positions = np.asarray(cache["positions"])
        for row, end in enumerate(ends):
            kept = [p for p in range(end) if p >= end - slots]
            assert sorted(positions[row][positions[row] >= 0]) == kept
            for slot in np.flatnonzero(positions[row] >= 0):
                assert positions[row, slot] % slots == slot
                for name, x in entries.items():
                    np.testing.assert_array_equal(cache[name][row, slot], x[row, positions[row, slot]])
        if step < 3:
            new = {name: jnp.asarray(x[np.arange(B), ends][:, None]) for name, x in entries.items()}
            cache = ops.write_cache(cache, new, jnp.asarray(ends[:, None], jnp.int32))


def test_a_cached_query_sees_the_keys_that_the_mask_of_a_forward_pass_shows():
    positions = jnp.asarray([[8, 5, 6, 7], [0, 1, -1, -1]])
    seen = ops.cache_mask(positions, jnp.asarray([[8], [1]]), 3)
    assert np.asarray(seen)[:, 0].tolist() == [[True, False, True, True], [True, True, False, False]]
    assert ops.cache_mask(positions, jnp.asarray([[8], [1]]), None).sum() == 6


def test_swiglu_is_clamped_above_on_the_gate_and_on_both_sides_of_it():
    gate, up = np.meshgrid([-30.0, -7.5, -1.0, 0.5, 6.9, 7.5, 30.0], [-30.0, -7.5, -6.5, 0.5, 6.5, 7.5, 30.0])
    low, wide = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    expected = low / (1 + np.exp(-1.702 * low)) * (wide + 1)
    found = ops.clamped_swiglu(jnp.asarray(gate, "float32"), jnp.asarray(up, "float32"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
