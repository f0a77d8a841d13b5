"""Tests of every family against Hugging Face transformers (golden files) and NumPy; a subclass names the twin."""

import dataclasses

import numpy as np
import pytest
from campaigns.matrix.factors import DECODING
from campaigns.matrix.rows import read_rows, recipe
from oracle_families import Family
from oracle_goldens import PRESET_OF, batch_of, config_of, golden
from oracle_weights import fill

from models_nnx.shared.config import AttentionKernel, LayerLayout
from models_nnx.shared.data import packed_batch

COMBINED = 7
"""One combination in this many is compared."""

# The quick run has the families with the most parts; the whole run has all.
QUICK = ("gemma3", "deepseek3", "gpt-oss")
CASES = [
    pytest.param(
        name,
        layout,
        id=f"{name}-{layout}",
        marks=() if name in QUICK and layout is LayerLayout.SCANNED else pytest.mark.slow,
    )
    for name in PRESET_OF
    for layout in LayerLayout
]

EXACT = {"param_dtype": "float64", "compute_dtype": "float64"}


def combinations():
    """Yields every seventh row of the covering matrix; each combines options that no published model combines."""
    rows = read_rows()["decoding"]
    for name in list(rows)[::COMBINED]:
        config = recipe(DECODING, rows[name]).variant.config
        attention = dataclasses.replace(
            config.attention, kernel=AttentionKernel.PLAIN
        )  # the other is float32
        yield pytest.param(dataclasses.replace(config, **EXACT, attention=attention), id=name)


@pytest.mark.usefixtures("quick")
class FamilySuite:
    """Tests of the logits of tiny models with weights drawn by name."""

    twin = None

    def logits(self, config, batch):
        model = self.twin.filled(config, lambda path, shape: fill(path, shape, config))
        return np.asarray(self.twin.jitted_filled(config)(model, batch))

    @pytest.mark.long
    @pytest.mark.parametrize("name, layout", CASES)
    def test_logits_are_those_of_the_independent_implementation(self, name, layout):
        config, batch = dataclasses.replace(config_of(name), layout=layout), batch_of()
        longest, window = np.bincount(batch["segments"][0])[1:].max(), config.attention.window
        assert window is None or longest > window + 3
        real = batch["segments"] != 0
        got, expected = self.logits(config, batch)[real], golden(name)[real]
        assert np.linalg.norm(got - expected) <= 1e-5 * np.linalg.norm(expected)
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("config", list(combinations()))
    def test_options_in_combination_are_the_oracle_s(self, config):
        batch = packed_batch(2, 40, 11)
        got, expected = self.logits(config, batch), Family(config).logits(batch)
        real = batch["segments"] != 0
        assert got.dtype == np.float64
        np.testing.assert_allclose(got[real], expected[real], rtol=0, atol=1e-11 * np.abs(expected).max())

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("name", PRESET_OF)
    def test_float64_logits_are_the_oracle_s(self, name):
        config = dataclasses.replace(config_of(name), param_dtype="float64", compute_dtype="float64")
        config = dataclasses.replace(
            config, layout=LayerLayout.UNROLLED if name == "qwen3" else config.layout
        )
        batch = packed_batch(1, 40, 11)
        got, expected = self.logits(config, batch), Family(config).logits(batch)
        real = batch["segments"] != 0
        assert got.dtype == np.float64
        np.testing.assert_allclose(got[real], expected[real], rtol=0, atol=1e-11 * np.abs(expected).max())
