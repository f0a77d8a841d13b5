"""Tests of predictors of further tokens, for both twins; a subclass names the twin."""

import dataclasses

import jax
import numpy as np
import pytest
from oracle_mtp import Predicting, direction
from oracle_weights import fill, names_of

from models_nnx.shared import ops
from models_nnx.shared.config import Head, LayerLayout, LayerSchedule, MtpConfig, TrainConfig
from models_nnx.shared.data import packed_batch
from models_nnx.shared.presets import preset, tiny

DOUBLE = {"param_dtype": "float64", "compute_dtype": "float64"}
DENSE = dataclasses.replace(
    tiny(preset("gemma2-9b")), layers=2, mtp=MtpConfig(depth=2, loss_scale=0.7), layout=LayerLayout.UNROLLED
)
ONE_LAYER = dataclasses.replace(tiny(preset("llama2-70b")), layers=1, mtp=DENSE.mtp)
EXPERTS = dataclasses.replace(
    tiny(preset("deepseek3-671b")), layers=3, dense_layers=1, mtp=MtpConfig(depth=2, loss_scale=0.4)
)
SPLIT = dataclasses.replace(EXPERTS, layer_schedule=LayerSchedule.BATCH_SPLIT)
SHALLOW = dataclasses.replace(EXPERTS, layers=2)
PLAIN = TrainConfig(z_loss=0.0)


def batch_of(rows, seed):
    """Returns a packed batch in which some tokens of documents have no weight, more in some rows than in others."""
    batch = packed_batch(rows, 40, seed)
    rng = np.random.default_rng(seed)
    share = np.linspace(0.2, 0.9, rows)[:, None]
    batch["weights"] = batch["weights"] * (rng.uniform(size=(rows, 40)) < share).astype(np.int32)
    assert batch["segments"].max(axis=1).min() >= 3
    return batch


def few_tokens(base):
    """Returns a float64 model with so few tokens that predictors often agree with it, and its batch."""
    batch = batch_of(2, 3)
    batch |= {name: batch[name] % 7 for name in ("tokens", "targets")}
    return dataclasses.replace(base, vocab=7, **DOUBLE), batch


def without_balance(config):
    """Returns a model whose loss consists of cross-entropies only."""
    return dataclasses.replace(config, moe=dataclasses.replace(config.moe, load_balance=0.0))


@pytest.mark.usefixtures("quick")
class MtpSuite:
    """Tests against the direct loop, and of properties of any implementation."""

    twin = None

    def filled(self, config):
        return self.twin.filled(config, lambda path, shape: fill(path, shape, config))

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("base", [DENSE, SPLIT], ids=["dense", "batch-split"])
    def test_losses_and_acceptance_are_the_direct_loop_s(self, base):
        config, batch = few_tokens(base)
        logits, metrics = self.twin.evaluate(config, PLAIN, self.filled(config), batch)
        main, depths = Predicting(config).judged(batch)
        real = batch["segments"] != 0
        np.testing.assert_allclose(
            np.asarray(logits)[real], main[real], rtol=0, atol=1e-10 * np.abs(main).max()
        )
        for number, depth in enumerate(depths, 1):
            weight = depth["weights"].sum()
            assert 0 < weight < batch["weights"].sum()
            found = {name: float(metrics[f"mtp/depth_{number}/{name}"]) for name in ("loss", "acceptance")}
            assert found["loss"] == pytest.approx(depth["loss_sum"] / weight, rel=1e-9)
            assert 0 < depth["accepted"] < weight
            assert found["acceptance"] == pytest.approx(depth["accepted"] / weight, rel=1e-9)

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    def test_choices_of_the_main_model_that_do_not_roll_are_noticed(self, monkeypatch):
        config, batch = few_tokens(DENSE)
        roll = ops.roll_batch

        def all_but_choices(batch, rules):
            return {**roll(batch, rules), **{name: x for name, x in batch.items() if name == "chosen"}}

        monkeypatch.setattr(ops, "roll_batch", all_but_choices)
        _, metrics = self.twin.evaluate(config, PLAIN, self.filled(config), batch)
        _, depths = Predicting(config).judged(batch)
        expected = [depth["accepted"] / depth["weights"].sum() for depth in depths]
        found = [float(metrics[f"mtp/depth_{number}/acceptance"]) for number in (1, 2)]
        assert all(abs(a - b) > 1e-3 for a, b in zip(found, expected, strict=True))

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("tiles", [1, 4])
    def test_the_gradient_is_the_direct_loop_s_finite_difference(self, tiles):
        config = dataclasses.replace(DENSE if tiles == 1 else without_balance(EXPERTS), **DOUBLE)
        config = dataclasses.replace(config, head=Head.TIED)
        batch, train = batch_of(2, 4), dataclasses.replace(PLAIN, vocab_tiles=tiles)
        loss, grads = self.twin.loss_and_gradients(config, train, self.filled(config), batch)
        oracle, step = Predicting(config), 1e-6
        assert loss == pytest.approx(oracle.mean_loss(batch), rel=1e-9)
        assert all(np.abs(grad).max() > 0 for name, grad in grads.items() if name.startswith("mtp."))
        sides = []
        for sign in (1, -1):
            oracle.step = sign * step
            sides.append(oracle.mean_loss(batch))
        slope = sum(np.sum(grad * self.stacked(name, grad.shape, config)) for name, grad in grads.items())
        assert slope == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6)

    def stacked(self, name, shape, config):
        names = names_of(name, config)
        if names == [name]:
            return direction(name, shape, config)
        axis = config.scan_axis
        single = shape[:axis] + shape[axis + 1 :]
        return np.stack([direction(one, single, config) for one in names], axis=axis)

    @pytest.mark.long
    @pytest.mark.usefixtures("x64")
    def test_three_unequal_microbatches_are_the_whole_batch(self):
        config, batch = dataclasses.replace(ONE_LAYER, **DOUBLE), batch_of(6, 5)
        tokens = batch["weights"].reshape(2, 3, -1).sum(axis=(0, 2))
        assert len(set(tokens)) == 3
        found = []
        for accumulation in (1, 3):
            train = TrainConfig(accumulation=accumulation)
            state = self.twin.fresh(config, train, jax.random.key(1))
            found.append(self.twin.stepper(config, train)(state, batch)[1])
        assert {"mtp/depth_1/loss", "mtp/depth_2/loss"} <= set(found[0])
        for name, value in found[0].items():
            np.testing.assert_allclose(found[1][name], value, rtol=1e-9, err_msg=name)

    @pytest.mark.long
    def test_a_step_moves_the_predictors_and_leaves_no_sown_values(self):
        state = self.twin.fresh(SHALLOW, PLAIN, jax.random.key(2))
        before = jax.tree_util.tree_flatten_with_path(jax.tree.map(np.asarray, self.biases(state)))[0]
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(self.twin.tree(state))[0]]
        state, metrics = self.twin.stepper(SHALLOW, PLAIN)(state, batch_of(4, 6))
        assert [path for path, _ in jax.tree_util.tree_flatten_with_path(self.twin.tree(state))[0]] == paths
        after = jax.tree_util.tree_flatten_with_path(self.biases(state))[0]
        assert "mtp_depth_2/routing_bias" in self.biases(state)
        assert all(
            np.any(np.asarray(b) != np.asarray(a)) for (_, b), (_, a) in zip(before, after, strict=True)
        )
        assert float(metrics["mtp/depth_2/loss"]) > 0

    def biases(self, state):
        return self.twin.routing_bias(SHALLOW, state)
