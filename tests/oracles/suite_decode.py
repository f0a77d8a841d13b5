"""Tests that greedy decoding with caches equals the argmax of plain forwards; a subclass names the twin."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle_goldens import PRESET_OF, config_of
from oracle_weights import fill

from models_nnx.shared.config import (
    CHECKPOINT_NAMES,
    DecodeConfig,
    LayerLayout,
    RematConfig,
    RematPolicy,
    Span,
)
from models_nnx.shared.presets import preset, tiny

STEPS, LENGTH = 16, 30
PROMPTS = np.random.default_rng(3).integers(0, 272, (2, 11)).astype(np.int32)
LENGTHS = np.asarray([11, 4], np.int32)
"""One prompt is longer than the tiny window of 7, one is shorter; both exceed it while decoding."""
STARTS = np.asarray([9, 3], np.int32)

QUICK = ("gemma3-scanned",)
CASES = [
    pytest.param(
        name,
        layout,
        id=f"{name}-{layout}",
        marks=() if f"{name}-{layout}" in QUICK else pytest.mark.long,
    )
    for name in PRESET_OF
    for layout in LayerLayout
]


REMATS = [
    RematConfig(policy=policy, names=CHECKPOINT_NAMES[:2] * (policy is RematPolicy.SAVE_NAMED))
    for policy in RematPolicy
]

TRACED = [
    pytest.param(
        name,
        layout,
        remat,
        id=f"{name}-{layout}-{remat.policy}",
        marks=() if name == "gemma2" and remat.policy is RematPolicy.FULL else pytest.mark.long,
    )
    for name in ("gemma2", "deepseek3")
    for layout in LayerLayout
    for remat in REMATS[1:]
]


def shapes(tree):
    """Returns ``{path: (shape, dtype)}``."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): (leaf.shape, str(leaf.dtype)) for path, leaf in leaves}


@pytest.mark.usefixtures("quick")
class DecodeSuite:
    """Tests of prefill, insert and generate."""

    twin = None

    def model(self, config):
        return self.twin.filled(config, lambda path, shape: fill(path, shape, config))

    def rollout(self, config, model, decode, prompts, lengths, key=None):
        prefill, generate = self.twin.decoders(config, decode, STEPS)
        _, state = prefill(model, prompts, lengths, key)
        return np.asarray(generate(model, state, key)[0])

    def plain(self, config, model):
        """Returns 16 tokens of each prompt, each the argmax of a forward pass over all tokens before it."""
        forward = self.twin.jitted_filled(config)
        rows = np.zeros((len(PROMPTS), LENGTH), np.int32)
        for row, prompt, length in zip(rows, PROMPTS, LENGTHS, strict=True):
            row[:length] = prompt[:length]
        ends = LENGTHS.copy()
        for _ in range(STEPS):
            positions = np.broadcast_to(np.arange(LENGTH, dtype=np.int32), rows.shape)
            segments = (positions < ends[:, None]).astype(np.int32)
            logits = np.asarray(
                forward(model, {"tokens": rows, "segments": segments, "positions": positions})
            )
            for row, end in enumerate(ends):
                rows[row, end] = logits[row, end - 1].argmax()
            ends += 1
        return np.stack([row[start : start + STEPS] for row, start in zip(rows, LENGTHS, strict=True)])

    @pytest.mark.long
    @pytest.mark.parametrize("name, layout", CASES)
    def test_a_greedy_rollout_is_the_argmax_of_plain_forwards(self, name, layout):
        config = dataclasses.replace(config_of(name), layout=layout)
        model = self.model(config)
        expected = self.plain(config, model)
        got = self.rollout(config, model, DecodeConfig(length=LENGTH), PROMPTS, LENGTHS)
        np.testing.assert_array_equal(got, expected)
        assert len(np.unique(expected)) > 2

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["gemma2", "deepseek3", "gpt-oss"])
    def test_logits_of_given_tokens_are_those_of_the_forward_pass(self, name):
        """Uses random tokens instead of chosen ones: a tied model with random weights tends to repeat itself."""
        config, decode = config_of(name), DecodeConfig(length=LENGTH)
        model = self.model(config)
        rows = np.random.default_rng(5).integers(0, 272, (2, LENGTH)).astype(np.int32)
        everywhere = {
            "tokens": rows,
            "segments": np.ones_like(rows),
            "positions": np.broadcast_to(np.arange(LENGTH, dtype=np.int32), rows.shape),
        }
        expected = np.asarray(self.twin.jitted_filled(config)(model, everywhere))
        _, state = self.twin.decoders(config, decode, STEPS)[0](model, rows[:, :9], STARTS)
        step = self.twin.stepper_of(config, decode)
        for number in range(STEPS):
            ends = STARTS + number
            state = state._replace(tokens_B1=jnp.asarray(rows[[0, 1], ends][:, None]))
            logits, state = step(model, state)
            np.testing.assert_allclose(
                logits, expected[[0, 1], ends], rtol=0, atol=1e-5 * np.abs(expected).max()
            )

    @pytest.mark.long
    def test_a_row_put_into_a_batch_goes_on_as_it_would_alone(self):
        """Covers continuous batching: a row replaces another in the middle of a rollout."""
        config = dataclasses.replace(config_of("gemma2"), layout=LayerLayout.SCANNED)
        model, decode = self.model(config), DecodeConfig(length=LENGTH)
        prefill, generate = self.twin.decoders(config, decode, STEPS)
        _, batch = prefill(model, PROMPTS, LENGTHS)
        _, row = prefill(model, PROMPTS[:1, ::-1], LENGTHS[:1])
        alone, _ = generate(model, row)
        together, _ = generate(model, self.twin.insert(batch, row, 1))
        untouched, _ = generate(model, batch)
        np.testing.assert_array_equal(together, np.stack([untouched[0], alone[0]]))
        assert (untouched[1] != alone[0]).any()

    @pytest.mark.long
    def test_a_temperature_draws_with_the_key(self):
        config = config_of("qwen3")
        model, prompt = self.model(config), (PROMPTS, LENGTHS)
        warm, cold = (DecodeConfig(length=LENGTH, temperature=value) for value in (5.0, 1e-4))
        first, again, other = (
            self.rollout(config, model, warm, *prompt, jax.random.key(seed)) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).mean() > 0.5
        greedy = self.rollout(config, model, DecodeConfig(length=LENGTH), *prompt)
        frozen = self.rollout(config, model, cold, *prompt, jax.random.key(0))
        np.testing.assert_array_equal(frozen[:, :1], greedy[:, :1])
        np.testing.assert_array_equal(frozen, greedy)

    @pytest.mark.long
    def test_rows_with_the_same_prompt_draw_separate_tokens_at_every_step(self):
        config = config_of("qwen3")
        warm = DecodeConfig(length=LENGTH, temperature=30.0)
        prompts, lengths = np.repeat(PROMPTS[:1], 8, axis=0), np.repeat(LENGTHS[:1], 8)
        for seed in range(2):
            drawn = self.rollout(config, self.model(config), warm, prompts, lengths, jax.random.key(seed))
            assert min(len(np.unique(column)) for column in drawn.T) > 4
            assert min(len(np.unique(row)) for row in drawn) > STEPS // 2

    @pytest.mark.long
    @pytest.mark.parametrize("name, layout, remat", TRACED)
    def test_a_model_that_trains_with_remat_decodes_too(self, name, layout, remat):
        """Covers one layer and cycles of several, with attention of both kinds."""
        plain = dataclasses.replace(config_of(name), layout=layout)
        decode = DecodeConfig(length=LENGTH)
        found = [
            shapes(self.twin.trace_decoding(config, decode, PROMPTS, LENGTHS))
            for config in (plain, dataclasses.replace(plain, remat=remat))
        ]
        assert found[0] == found[1]

    @pytest.mark.long
    @pytest.mark.parametrize("remat", REMATS[1:], ids=lambda remat: remat.policy)
    def test_remat_leaves_every_token_as_it_is(self, remat):
        plain = dataclasses.replace(config_of("gemma2"), layout=LayerLayout.SCANNED)
        model, decode = self.model(plain), DecodeConfig(length=LENGTH)
        config = dataclasses.replace(plain, remat=remat)
        expected = self.rollout(plain, model, decode, PROMPTS, LENGTHS)
        found = self.rollout(config, self.model(config), decode, PROMPTS, LENGTHS)
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize(
        "name, window, length",
        [
            ("gemma2-9b", 3, 20),
            pytest.param("gemma2-9b", 20, 12, marks=pytest.mark.slow),
            pytest.param("gemma2-9b", 12, 12, marks=pytest.mark.slow),
            pytest.param("gemma3-12b", 5, 13, marks=pytest.mark.slow),
            pytest.param("gpt-oss-20b", 4, 30, marks=pytest.mark.slow),
            pytest.param("qwen3-8b", 3, 20, marks=pytest.mark.slow),
            pytest.param("deepseek3-671b", 3, 20, marks=pytest.mark.slow),
        ],
    )
    def test_layers_keep_as_many_keys_as_they_see(self, name, window, length):
        config = tiny(preset(name))
        local = Span.LOCAL in config.attention.cycle
        if local:
            config = dataclasses.replace(
                config, attention=dataclasses.replace(config.attention, window=window)
            )
        expected = {min(window, length)} if local else set()
        expected |= {length} if Span.GLOBAL in config.attention.cycle else set()
        decode = DecodeConfig(length=length)
        (_, before), (_, after) = self.twin.trace_decoding(config, decode, PROMPTS, LENGTHS)
        for state in (before, after):
            found = {path: shape for path, (shape, _) in shapes(state.cache).items()}
            assert {shape[-1] for path, shape in found.items() if "cached_positions" in path} == expected
