"""Tests of either twin's training step against plain NumPy; a subclass names the twin."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle_decoder
import oracle_train
import pytest
from oracle_decoder import SMALL, random_batch, random_params

from models_nnx.shared import ops
from models_nnx.shared.config import Head, LayerLayout, OptimizerConfig, RematConfig, RematPolicy, TrainConfig

DOUBLE = dataclasses.replace(SMALL, param_dtype="float64", compute_dtype="float64")
TIED = dataclasses.replace(
    DOUBLE, layers=2, head=Head.TIED, scan_axis=0, remat=RematConfig(policy=RematPolicy.FULL)
)
UNROLLED = dataclasses.replace(
    DOUBLE,
    layers=2,
    layout=LayerLayout.UNROLLED,
    remat=RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "mlp_hidden")),
)
# Four steps cover every piece of the schedule: 0, half, peak, decay.
OPTIMIZER = OptimizerConfig(
    learning_rate=0.02, warmup_steps=2, total_steps=5, b1=0.8, b2=0.9, epsilon=1e-4, weight_decay=0.3
)
CLIPPED = dataclasses.replace(OPTIMIZER, clip_norm=0.2, max_bad_steps=2)
SPIKY = dataclasses.replace(
    OPTIMIZER, final_learning_rate=0.004, spike_window=3, spike_factor=4.0, max_bad_steps=2
)
LOOSE = dataclasses.replace(OPTIMIZER, clip_norm=1e3)
CASES = {
    "scanned-accumulate1-clipped": (DOUBLE, TrainConfig(optimizer=CLIPPED, z_loss=0.1)),
    "scanned-accumulate4-loose": (DOUBLE, TrainConfig(optimizer=LOOSE, z_loss=0.1, accumulation=4)),
    "scanned-tied-accumulate2-clipped": (TIED, TrainConfig(optimizer=CLIPPED, z_loss=0.1, accumulation=2)),
    "unrolled-accumulate2-loose": (UNROLLED, TrainConfig(optimizer=LOOSE, z_loss=0.1, accumulation=2)),
}
COUNTERS = {
    "step": "step",
    "count": "count",
    "schedule_count": "count",
    "bad": "bad",
    "bad_total": "bad_total",
}


def assert_agrees(snapshot, oracle):
    """Asserts that every leaf of the twin's state is the oracle's, except for optax's float32 learning rate."""
    assert {name: snapshot[name] for name in COUNTERS} == {
        name: getattr(oracle, attribute) for name, attribute in COUNTERS.items()
    }
    for tree in ("params", "mu", "nu"):
        expected = getattr(oracle, tree)
        assert snapshot[tree].keys() == expected.keys()
        for name, leaf in expected.items():
            assert snapshot[tree][name].dtype == np.float64
            scale = np.abs(leaf).max() if np.isfinite(leaf).all() else 1.0
            np.testing.assert_allclose(
                snapshot[tree][name], leaf, rtol=1e-7, atol=1e-7 * scale, err_msg=f"{tree} {name}"
            )


def unlikely(params, config, batch):
    """Returns the targets that are least likely for the model."""
    logits = oracle_decoder.logits(params, batch, config)
    return {"targets": np.argmin(logits, axis=-1).astype(np.int32)}


def without_weight(batch):
    """Returns a batch without weight, for which 0 / 0 makes every gradient NaN."""
    return {**batch, "weights": np.zeros_like(batch["weights"])}


@pytest.fixture
def keys_drawn(monkeypatch):
    """Collects the key of every dropout that runs."""
    drawn, original = [], ops.dropout

    def spy(x, key, rate):
        data = jax.random.key_data(key)
        jax.debug.callback(lambda data: drawn.append(tuple(np.asarray(data).tolist())), data)
        return original(x, key, rate)

    monkeypatch.setattr(ops, "dropout", spy)
    return drawn


@pytest.mark.usefixtures("quick")
class TrainSuite:
    """Tests of gradients, accumulation, optimizer, skipped updates and keys."""

    twin = None

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("case", CASES)
    def test_four_steps_are_the_oracle_s(self, case):
        config, train = CASES[case]
        params = random_params(config)
        state, step = self.twin.start(config, train, params), self.twin.cached_stepper(config, train)
        gradients = oracle_train.gradients(config, train.z_loss)
        oracle = oracle_train.AdamW(params, train.optimizer)
        for seed in range(4):
            batch = random_batch(config.vocab, seed=seed)
            tokens = batch["weights"].reshape(-1, train.accumulation, oracle_decoder.LENGTH).sum(axis=(0, 2))
            assert len(set(tokens)) == train.accumulation, tokens
            loss, grads = gradients(oracle.params, batch)
            state, metrics = step(state, batch)
            assert float(metrics["loss"]) == pytest.approx(loss, rel=1e-7)
            assert float(metrics["weight"]) == batch["weights"].sum()
            assert float(metrics["grad_norm"]) == pytest.approx(oracle_train.norm(grads), rel=1e-7)
            assert (oracle_train.norm(grads) > train.optimizer.clip_norm) == (train.optimizer.clip_norm < 1)
            oracle.update(grads)
            snapshot = self.twin.snapshot(config, state)
            assert_agrees(snapshot, oracle)
            assert snapshot["last_finite"] == 1
            np.testing.assert_array_equal(snapshot["key"], jax.random.key_data(jax.random.key(5)))

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    def test_non_finite_steps_are_skipped_and_counted_until_there_are_too_many(self):
        config, train = CASES["scanned-accumulate1-clipped"]
        params = random_params(config)
        state, step = self.twin.start(config, train, params), self.twin.cached_stepper(config, train)
        gradients = oracle_train.gradients(config, train.z_loss)
        oracle = oracle_train.AdamW(params, train.optimizer)
        for seed, good in enumerate([True, True, False, False, True, False, False, False]):
            batch = random_batch(config.vocab, seed=seed)
            _, grads = gradients(oracle.params, batch)
            if not good:
                batch = without_weight(batch)
                grads = {name: np.full_like(grad, np.nan) for name, grad in grads.items()}
            state, metrics = step(state, batch)
            oracle.update(grads)
            snapshot = self.twin.snapshot(config, state)
            assert bool(snapshot["last_finite"]) == bool(np.isfinite(metrics["loss"])) == good
            assert_agrees(snapshot, oracle)
        assert (oracle.step, oracle.count, oracle.bad, oracle.bad_total) == (8, 4, 3, 5)
        assert all(np.isnan(leaf).all() for leaf in snapshot["params"].values())

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    def test_spikes_are_skipped_by_the_loss_that_is_optimised_until_there_are_too_many(self):
        """Includes a non-finite batch, which is no spike; the z-loss is part of the compared loss."""
        config, _ = CASES["scanned-accumulate1-clipped"]
        train = TrainConfig(optimizer=SPIKY, z_loss=0.1)
        params = random_params(config)
        state, step = self.twin.start(config, train, params), self.twin.cached_stepper(config, train)
        gradients = oracle_train.gradients(config, train.z_loss)
        oracle = oracle_train.AdamW(params, train.optimizer)
        counts = []
        for kind in ("usual", "usual", "usual", "spike", "nan", "usual", "spike", "spike", "spike", "usual"):
            batch = random_batch(config.vocab, seed=1)
            if kind == "spike":
                batch |= unlikely(oracle.params, config, batch)
            loss, grads = gradients(oracle.params, batch)
            if kind == "nan":
                batch = without_weight(batch)
                grads, loss = {name: np.full_like(grad, np.nan) for name, grad in grads.items()}, np.nan
            state, metrics = step(state, batch)
            oracle.update(grads, loss)
            assert float(metrics["loss"]) == pytest.approx(loss, rel=1e-6, nan_ok=True)
            snapshot = self.twin.snapshot(config, state, spikes=True)
            assert_agrees(snapshot, oracle)
            assert (snapshot["spikes"], snapshot["spikes_total"]) == (oracle.spikes, oracle.spikes_total)
            counts.append(oracle.count)
            oracle.params, oracle.mu, oracle.nu = (snapshot[tree] for tree in ("params", "mu", "nu"))
        assert counts == [1, 2, 3, 3, 3, 4, 4, 4, 5, 6]  # the third consecutive spike is applied

    @pytest.mark.long
    def test_the_schedule_is_its_formula_at_every_step(self):
        """Compares the optimizer's change of a parameter, past the end, with weight decay as the only change."""
        config = OptimizerConfig(
            learning_rate=0.3, final_learning_rate=0.05, warmup_steps=4, total_steps=11, weight_decay=0.5
        )
        optimizer = self.twin.train.make_optimizer(config)
        params, still = {"w": jnp.float32(1.0)}, {"w": jnp.float32(0.0)}
        state = optimizer.init(params)
        rates = []
        for _ in range(15):
            updates, state = optimizer.update(still, state, params)
            rates.append(-float(updates["w"]) / config.weight_decay)
        expected = [oracle_train.learning_rate(count, config) for count in range(15)]
        np.testing.assert_allclose(rates, expected, rtol=1e-6)
        assert expected[4] == 0.3 and expected[0] == 0 and expected[-1] == expected[-3] == 0.05

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    def test_three_unequal_microbatches_are_the_full_batch(self):
        """One of the microbatches has no weight."""
        config, train = CASES["scanned-accumulate1-clipped"]
        train = TrainConfig(optimizer=LOOSE, z_loss=0.1, accumulation=3)
        params = random_params(config)
        batch = random_batch(config.vocab, rows=9, seed=3)
        batch["weights"][1::3] = 0
        tokens = batch["weights"].reshape(3, 3, -1).sum(axis=(0, 2))
        assert len(set(tokens)) == 3 and tokens[1] == 0
        loss, grads = oracle_train.gradients(config, train.z_loss)(params, batch)
        oracle = oracle_train.AdamW(params, train.optimizer)
        state, step = self.twin.start(config, train, params), self.twin.stepper(config, train)
        state, metrics = step(state, batch)
        oracle.update(grads)
        assert float(metrics["loss"]) == pytest.approx(loss, rel=1e-7)
        assert_agrees(self.twin.snapshot(config, state), oracle)

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    def test_one_bad_entry_skips_the_whole_step(self):
        """Covers an overflow in one kernel's gradient; all else is finite."""
        optimizer = self.twin.train.make_optimizer(CLIPPED)
        params = {"a": jnp.full((2, 3), 1.5), "b": jnp.ones(4)}
        state = optimizer.init(params)
        bad = {"a": jnp.ones((2, 3)).at[1, 2].set(jnp.inf), "b": jnp.ones(4)}
        for _ in range(2):
            updates, state = optimizer.update(bad, state, params)
            assert all((leaf == 0).all() for leaf in updates.values())
        assert (int(state.notfinite_count), int(state.total_notfinite)) == (2, 2)

    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("clip", [0.5, 50.0])
    def test_the_optimizer_alone_follows_the_oracle_past_the_end_of_its_schedule(self, clip):
        settings = dataclasses.replace(OPTIMIZER, clip_norm=clip, warmup_steps=3, total_steps=7)
        optimizer = self.twin.train.make_optimizer(settings)
        update = jax.jit(optimizer.update)
        rng = np.random.default_rng(0)
        params = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=5), "still": rng.normal(size=4)}
        oracle = oracle_train.AdamW(params, settings)
        state = optimizer.init(params)
        for _ in range(9):
            grads = {name: rng.normal(size=leaf.shape) for name, leaf in params.items()}
            grads["still"] *= 0
            updates, state = update(grads, state, params)
            params = {name: params[name] + np.asarray(updates[name]) for name in params}
            oracle.update(grads)
            for name, leaf in oracle.params.items():
                np.testing.assert_allclose(params[name], leaf, rtol=1e-6)
        assert oracle_train.learning_rate(8, settings) == 0

    @pytest.mark.long
    @pytest.mark.parametrize(
        "layout, policy", [(LayerLayout.SCANNED, RematPolicy.FULL), (LayerLayout.UNROLLED, RematPolicy.NONE)]
    )
    def test_every_dropout_of_every_layer_microbatch_and_step_has_a_separate_key(
        self, keys_drawn, layout, policy
    ):
        config = dataclasses.replace(
            SMALL, dropout=0.25, layout=layout, remat=RematConfig(policy=policy), layers=2
        )
        train = TrainConfig(accumulation=2)
        state, step = self.twin.start(config, train, random_params(config)), self.twin.stepper(config, train)
        counts = []
        for _ in range(3):
            state, _ = step(state, random_batch(config.vocab))
            jax.effects_barrier()
            counts.append(len(set(keys_drawn)))
        per_step = 2 * config.layers * train.accumulation
        assert counts == [per_step, 2 * per_step, 3 * per_step]
        again = 2 if policy is RematPolicy.FULL else 1
        assert all(keys_drawn.count(key) in (1, again) for key in set(keys_drawn))

    @pytest.mark.long
    def test_a_fresh_state(self):
        config = dataclasses.replace(SMALL, layers=2)
        state = self.twin.snapshot(config, self.twin.fresh(config, TrainConfig(), jax.random.key(9)))
        assert {state[name] for name in COUNTERS} == {0} and state["last_finite"] == 1
        for name, leaf in state["params"].items():
            assert leaf.dtype == np.float32 and leaf.shape == oracle_decoder.shapes(config)[name]
            for moment in ("mu", "nu"):
                assert state[moment][name].shape == leaf.shape and not state[moment][name].any()
        np.testing.assert_array_equal(
            state["key"], jax.random.key_data(jax.random.split(jax.random.key(9))[1])
        )

    def test_no_parameter_is_a_constant_of_the_step(self):
        train = TrainConfig(accumulation=2)
        config = dataclasses.replace(SMALL, dropout=0.25)
        state = self.twin.start(config, train, random_params(config))
        jaxpr = self.twin.trace_step(config, train, state, random_batch(config.vocab))
        sizes = [
            np.size(const) for const in jaxpr.consts if not jnp.issubdtype(const.dtype, jax.dtypes.prng_key)
        ]
        assert sum(sizes) < config.embed, sizes
