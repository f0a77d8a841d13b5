"""Greedy decoding with caches equals the argmax of plain forwards; a subclass names the twin."""

import dataclasses

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

QUICK = ("gemma3-scanned", "deepseek3-scanned")
CASES = [
    pytest.param(
        name,
        layout,
        id=f"{name}-{layout}",
        marks=() if f"{name}-{layout}" in QUICK else pytest.mark.slow,
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
        _, state = prefill(model, prompts, lengths)
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
        assert len(np.unique(expected)) > 4
