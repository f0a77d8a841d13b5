"""Tests of the values that layers sow, and of the routing bias, for both twins."""

import dataclasses

import jax
import numpy as np
import pytest
from oracle_decoder import SMALL, random_batch

from models_nnx.shared.config import LayerLayout, MoeConfig, Scoring, TrainConfig

EXPERTS, RATE, COEFFICIENT = 6, 0.25, 0.5
CONFIG = dataclasses.replace(
    SMALL,
    layers=3,
    dense_layers=1,
    moe=MoeConfig(
        experts=EXPERTS,
        top_k=2,
        hidden=10,
        scoring=Scoring.SIGMOID,
        bias_rate=RATE,
        load_balance=COEFFICIENT,
    ),
)
BATCH = random_batch(SMALL.vocab, rows=4)
LAYERS = ("layers_1", "layers_2")


@pytest.mark.usefixtures("quick")
class MoeSuite:
    """Tests of sown values and routing bias; subclasses name the ``twin``."""

    def step(self, config, train):
        """Returns ``(biases before, biases after, metrics)`` of one training step."""
        state = self.twin.fresh(config, train, jax.random.key(2))
        before = self.biases(config, state)
        state, metrics = self.twin.cached_stepper(config, train)(state, BATCH)
        return before, self.biases(config, state), {name: np.asarray(x) for name, x in metrics.items()}

    def biases(self, config, state):
        return {name: np.asarray(bias) for name, bias in self.twin.routing_bias(config, state).items()}

    @pytest.mark.long
    @pytest.mark.parametrize("layout", LayerLayout)
    def test_the_bias_of_each_layer_follows_its_load_of_the_step(self, layout):
        before, after, metrics = self.step(dataclasses.replace(CONFIG, layout=layout), TrainConfig())
        assert set(before) == set(after) == {f"{layer}/routing_bias" for layer in LAYERS}
        present = int((BATCH["segments"] != 0).sum())
        for layer in LAYERS:
            load = metrics[f"sown/{layer}/expert_load"]
            assert load.sum() == 2 * present
            moved = after[f"{layer}/routing_bias"] - before[f"{layer}/routing_bias"]
            np.testing.assert_allclose(moved, RATE * np.sign(load.mean() - load), atol=1e-6)
            assert np.unique(moved).size > 1
        assert sorted(name for name in metrics if name.startswith("sown/")) == [
            f"sown/{layer}/{name}" for layer in LAYERS for name in ("expert_load", "load_balance")
        ]

    @pytest.mark.long
    def test_accumulation_sums_loads_and_moves_the_bias_once(self):
        whole, halves = (self.step(CONFIG, TrainConfig(accumulation=n)) for n in (1, 2))
        for layer in LAYERS:
            load = f"sown/{layer}/expert_load"
            np.testing.assert_array_equal(whole[2][load], halves[2][load])
            np.testing.assert_array_equal(*(found[1][f"{layer}/routing_bias"] for found in (whole, halves)))

    @pytest.mark.long
    def test_the_loss_has_the_mean_balance_of_the_layers_times_its_coefficient(self):
        free = dataclasses.replace(CONFIG, moe=dataclasses.replace(CONFIG.moe, load_balance=0.0))
        balanced, plain = (self.step(config, TrainConfig())[2] for config in (CONFIG, free))
        balances = [balanced[f"sown/{layer}/load_balance"] for layer in LAYERS]
        assert all(balance > 0.5 for balance in balances) and balances[0] != balances[1]
        gained = balanced["loss"] - plain["loss"]
        np.testing.assert_allclose(gained, COEFFICIENT * np.mean(balances), rtol=1e-4)

    @pytest.mark.long
    def test_a_step_leaves_no_sown_values_in_the_state(self):
        state = self.twin.fresh(CONFIG, TrainConfig(), jax.random.key(2))
        paths = jax.tree_util.tree_flatten_with_path(self.twin.tree(state))[0]
        state, _ = self.twin.cached_stepper(CONFIG, TrainConfig())(state, BATCH)
        after = jax.tree_util.tree_flatten_with_path(self.twin.tree(state))[0]
        assert [path for path, _ in after] == [path for path, _ in paths]

    @pytest.mark.long
    @pytest.mark.parametrize("seed", range(2))
    def test_sown_values_depend_on_every_token_and_not_on_padding(self, seed):
        """Loads and balance count exactly the tokens that are present, with any tokens in the padding."""
        rng = np.random.default_rng(100 + seed)
        other = rng.integers(0, SMALL.vocab, BATCH["tokens"].shape).astype(np.int32)
        padding = BATCH["segments"] == 0
        state = self.twin.fresh(CONFIG, TrainConfig(), jax.random.key(2))
        model = self.twin.parts(state)
        found = []
        for tokens in (
            BATCH["tokens"],
            np.where(padding, other, BATCH["tokens"]),
            np.where(padding, BATCH["tokens"], other),
        ):
            _, metrics = self.twin.evaluate(CONFIG, TrainConfig(), model, {**BATCH, "tokens": tokens})
            found.append({name: np.asarray(x) for name, x in metrics.items() if name.startswith("sown/")})
        plain, padded, changed = found
        assert plain and padding.sum() > 2
        for name, value in plain.items():
            np.testing.assert_array_equal(padded[name], value, err_msg=name)
            assert (changed[name] != value).any(), name
