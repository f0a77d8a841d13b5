"""Greedy decoding with caches equals the argmax of plain forwards; a subclass names the twin."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle_goldens import PRESET_OF, config_of
from oracle_weights import fill

from models_nnx.config import DecodeConfig, LayerLayout

STEPS, LENGTH = 16, 30
PROMPTS = np.random.default_rng(3).integers(0, 272, (2, 11)).astype(np.int32)
LENGTHS = np.asarray([11, 4], np.int32)
"""One prompt is longer than the tiny window of 7, one is shorter; both pass it while decoding."""
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


@pytest.mark.usefixtures("quick")
class DecodeSuite:
    """Prefill, insert, generate."""

    twin = None

    def model(self, config):
        return self.twin.filled(config, lambda path, shape: fill(path, shape, config))

    def rollout(self, config, model, decode, prompts, lengths, key=None):
        prefill, generate = self.twin.decoders(config, decode, STEPS)
        _, state = prefill(model, prompts, lengths, key)
        return np.asarray(generate(model, state, key)[0])

    def plain(self, config, model):
        """16 tokens of each prompt, each the argmax of a forward pass over all before it."""
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

    @pytest.mark.parametrize("name, layout", CASES)
    def test_a_greedy_rollout_is_the_argmax_of_plain_forwards(self, name, layout):
        config = dataclasses.replace(config_of(name), layout=layout)
        model = self.model(config)
        expected = self.plain(config, model)
        got = self.rollout(config, model, DecodeConfig(length=LENGTH), PROMPTS, LENGTHS)
        np.testing.assert_array_equal(got, expected)
        assert len(np.unique(expected)) > 2

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["gemma2", "deepseek3", "gpt-oss"])
    def test_logits_of_given_tokens_are_those_of_the_forward_pass(self, name):
        """Random tokens instead of chosen ones: a tied model at random weights likes to repeat itself."""
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

    @pytest.mark.slow
    def test_a_row_put_into_a_batch_goes_on_as_it_would_alone(self):
        """Continuous batching: a row takes the slot of another in the middle of a rollout."""
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

    @pytest.mark.slow
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
