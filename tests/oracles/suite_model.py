"""Tests of either twin's model against plain NumPy; a subclass names the twin."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle_decoder
import pytest
from oracle_decoder import SMALL, random_batch, random_params

from models_nnx.shared.config import (
    Activation,
    AttentionKernel,
    Head,
    LayerLayout,
    MlpConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
)
from models_nnx.shared.presets import preset

UNROLLED, TIED = LayerLayout.UNROLLED, Head.TIED
MHA = dataclasses.replace(SMALL.attention, kv_heads=6)
LIBRARY = dataclasses.replace(SMALL.attention, kernel=AttentionKernel.LIBRARY)
FULL = RematConfig(policy=RematPolicy.FULL)
CASES = {
    "scanned-untied-gqa": {},
    "scanned-tied-mha-axis0": {"head": TIED, "attention": MHA, "scan_axis": 0},
    "scanned-gelu-full": {"mlp": MlpConfig(hidden=22, activation=Activation.GELU), "remat": FULL},
    "unrolled-untied-mha": {"layout": UNROLLED, "attention": MHA},
    "unrolled-tied-gqa-full": {"layout": UNROLLED, "head": TIED, "remat": FULL},
}
CASES64 = {
    name: {**change, "param_dtype": "float64", "compute_dtype": "float64"} for name, change in CASES.items()
}


def config_of(change):
    return dataclasses.replace(SMALL, **change)


def with_document(batch, row, segment):
    """Returns ``batch`` in which ``row`` holds only one of its documents, from the start, then padding."""
    where = np.flatnonzero(batch["segments"][row] == segment)
    alone = {name: array.copy() for name, array in batch.items()}
    alone["segments"][row], alone["positions"][row] = 0, 0
    alone["segments"][row, : where.size] = 1
    alone["positions"][row, : where.size] = np.arange(where.size)
    alone["tokens"][row, : where.size] = batch["tokens"][row, where]
    return alone, where


@pytest.mark.usefixtures("quick")
class ModelSuite:
    """Tests of forward pass, initial values, dtypes, axes and dropout."""

    twin = None

    def logits(self, config, batch, params=None, key=None):
        params = random_params(config) if params is None else params
        return np.asarray(self.twin.jitted(config)(self.twin.model(config, params), batch, key))

    @pytest.mark.slow
    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("case", CASES64)
    def test_float64_logits_are_the_oracle_s(self, case):
        config = config_of(CASES64[case])
        batch = random_batch(config.vocab)
        expected = oracle_decoder.logits(random_params(config), batch, config)
        got = self.logits(config, batch)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())

    @pytest.mark.slow
    @pytest.mark.parametrize("case", ["scanned-untied-gqa", "unrolled-tied-gqa-full", "library"])
    def test_float32_logits_are_within_float32_noise(self, case):
        """The noise is the error of the oracle itself in float32."""
        config = config_of(CASES.get(case, {"attention": LIBRARY}))
        batch = random_batch(config.vocab)
        params = {name: leaf.astype(np.float32) for name, leaf in random_params(config).items()}
        exact = oracle_decoder.logits({k: v.astype(np.float64) for k, v in params.items()}, batch, config)
        rounded = oracle_decoder.logits(params, batch, config)
        assert rounded.dtype == np.float32
        noise = np.sqrt(np.mean((rounded - exact) ** 2))
        error = np.sqrt(np.mean((self.logits(config, batch, params) - exact) ** 2))
        assert error <= 3 * noise, f"error {error:.2e}, noise {noise:.2e}"

    @pytest.mark.usefixtures("x64")
    def test_a_document_s_logits_are_those_of_the_document_alone(self):
        config = config_of(CASES64["scanned-untied-gqa"])
        batch = random_batch(config.vocab)
        packed = self.logits(config, batch)
        for row, segment in ((0, 1), (1, 2), (5, 4), (2, 0)):
            alone, where = with_document(batch, row, segment)
            np.testing.assert_allclose(
                self.logits(config, alone)[row, : where.size] if segment else packed[row, where],
                packed[row, where],
                rtol=1e-10,
            )

    @pytest.mark.usefixtures("x64")
    def test_a_later_token_changes_no_earlier_logit_and_no_other_document(self):
        config = config_of(CASES64["scanned-untied-gqa"])
        batch = random_batch(config.vocab)
        before = self.logits(config, batch)
        row = int((batch["segments"] == 2).sum(axis=1).argmax())
        where = np.flatnonzero(batch["segments"][row] == 2)
        index = where[where.size // 2]
        assert where.size >= 3
        changed = {name: array.copy() for name, array in batch.items()}
        changed["tokens"][row, index] = (changed["tokens"][row, index] + 1) % config.vocab
        differs = (self.logits(config, changed) != before).any(axis=-1)
        expected = np.zeros_like(differs)
        expected[row, index : where[-1] + 1] = True
        np.testing.assert_array_equal(differs, expected)

    @pytest.mark.usefixtures("x64")
    def test_only_distances_between_positions_count(self):
        config = config_of(CASES64["scanned-untied-gqa"])
        batch = random_batch(config.vocab)
        before = self.logits(config, batch)
        np.testing.assert_allclose(
            self.logits(config, {**batch, "positions": batch["positions"] + 7}), before, rtol=1e-9, atol=1e-10
        )
        stretched = self.logits(config, {**batch, "positions": 2 * batch["positions"]})
        assert np.abs(stretched - before).max() > 1e-2

    @pytest.mark.slow
    @pytest.mark.usefixtures("x64")
    def test_the_norm_epsilon_of_the_config_is_used_everywhere(self):
        """Uses embeddings and kernels so small that epsilon dominates the first norm and the others."""
        config = config_of({**CASES64["scanned-untied-gqa"], "norm_epsilon": 1e-5})
        batch = random_batch(config.vocab)
        params = {k: v if k.endswith("scale") else 1e-2 * v for k, v in random_params(config).items()}
        expected = oracle_decoder.logits(params, batch, config)
        near = oracle_decoder.logits(params, batch, dataclasses.replace(config, norm_epsilon=1e-6))
        assert np.abs(near / expected - 1).max() > 0.1
        np.testing.assert_allclose(self.logits(config, batch, params), expected, rtol=1e-10, atol=1e-14)

    @pytest.mark.parametrize("name, count", [("llama2-7b", 6_738_415_616), ("llama2-70b", 68_976_648_192)])
    def test_presets_have_the_published_number_of_parameters(self, name, count):
        leaves = self.twin.abstract_params(preset(name)).values()
        assert sum(np.prod(leaf.shape, dtype=np.int64) for leaf in leaves) == count

    @pytest.mark.parametrize("case", CASES)
    def test_parameters_have_the_shapes_and_dtype_of_the_config(self, case):
        config = dataclasses.replace(config_of(CASES[case]), param_dtype="bfloat16")
        leaves = self.twin.abstract_params(config)
        assert {leaf.dtype for leaf in leaves.values()} == {jnp.dtype("bfloat16")}
        zeros = {path: np.zeros(leaf.shape) for path, leaf in leaves.items()}
        found = {name: leaf.shape for name, leaf in oracle_decoder.to_layer_first(zeros, config).items()}
        assert found == oracle_decoder.shapes(config)

    @pytest.mark.parametrize("scan_axis", [0, 1])
    def test_every_parameter_and_moment_names_its_axes(self, scan_axis):
        config = config_of({"scan_axis": scan_axis})
        leaves = self.twin.logical_axes(config, TrainConfig())
        named = {path: (shape, axes) for path, (shape, axes) in leaves.items() if axes is not None}
        kinds = [path for path in named if path.endswith((".kernel", ".scale", ".embedding"))]
        assert len(kinds) == 3 * len(oracle_decoder.shapes(config)) == len(named)
        size = {"embed": 18, "heads": 6, "kv_heads": 3, "head_dim": 10, "mlp": 22, "vocab": 29, "norm": 18}
        for path, (shape, axes) in named.items():
            assert shape == tuple(config.layers if a == "layers" else size[a] for a in axes), path
            assert ("layers" in axes) == (".layers." in path), path
            if "layers" in axes:
                assert axes.index("layers") == scan_axis, path

    @pytest.mark.long
    @pytest.mark.parametrize("layout", LayerLayout)
    def test_initial_values(self, layout):
        config = dataclasses.replace(SMALL, layout=layout)
        params = self.twin.initial(config, 3)
        fan_in = {"out": 60, "down": 22}
        for name, leaf in params.items():
            part = name.split(".")[-2]
            if name.endswith("scale"):
                assert (leaf == 1).all()
                continue
            expected = 0.02 if part == "embedder" else fan_in.get(part, 18) ** -0.5
            error = 4 * expected / np.sqrt(2 * leaf.size)
            assert leaf.std() == pytest.approx(expected, abs=error), name
            assert abs(leaf.mean()) < 4 * expected / np.sqrt(leaf.size), name
            if name.startswith("layers."):
                assert len({layer.tobytes() for layer in leaf}) == config.layers, name
        flat = np.concatenate([params[f"layers.mlp.{part}.kernel"][0].ravel() for part in ("gate", "up")])
        assert np.unique(flat).size > 0.99 * flat.size

    @pytest.mark.slow
    @pytest.mark.parametrize("layout", LayerLayout)
    @pytest.mark.parametrize(
        "params, compute", [("float32",) * 2, ("float32", "bfloat16"), ("bfloat16",) * 2]
    )
    def test_traces_under_strict_dtype_promotion(self, layout, params, compute):
        config = dataclasses.replace(
            SMALL, layout=layout, param_dtype=params, compute_dtype=compute, dropout=0.25, remat=FULL
        )
        key, batch = jax.random.key(0), random_batch(config.vocab)
        values = random_params(config)
        loss, tree = self.twin.pure(self.twin.loss(config, TrainConfig()), config, values)
        forward, _ = self.twin.pure(self.twin.forward(config), config, values)
        with jax.numpy_dtype_promotion("strict"):
            logits = jax.eval_shape(forward, tree, batch, key)
            sums = jax.eval_shape(loss, tree, batch, key)
            grads = jax.eval_shape(jax.grad(lambda tree: loss(tree, batch, key)[0]), tree)
        assert logits.dtype == jnp.dtype(compute)
        assert [x.dtype for x in sums] == [jnp.float32] * 2
        assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype(params)}

    @pytest.mark.slow
    def test_bfloat16_logits_are_within_bfloat16_noise(self):
        """Noise: half a unit in the last place, 2^-9, from each of about 17 roundings in each layer, twice."""
        config = config_of({"compute_dtype": "bfloat16", "param_dtype": "bfloat16"})
        batch = random_batch(config.vocab)
        params = {
            k: np.asarray(jnp.asarray(v, "bfloat16"), np.float64) for k, v in random_params(config).items()
        }
        exact = oracle_decoder.logits(params, batch, config)
        error = self.logits(config, batch, params).astype(np.float64) - exact
        relative = np.sqrt(np.mean(error**2) / np.mean(exact**2))
        assert 2**-10 < relative < 2 * 2**-9 * np.sqrt(17 * config.layers), relative

    @pytest.mark.slow
    def test_dropout_needs_a_key_and_drops(self):
        config = dataclasses.replace(SMALL, dropout=0.25)
        batch, params = random_batch(config.vocab), random_params(config)
        plain = self.logits(SMALL, batch, params)
        first, again = (self.logits(config, batch, params, jax.random.key(1)) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        assert (first != plain).any(axis=-1).all()
        assert (self.logits(config, batch, params, jax.random.key(2)) != first).any(axis=-1).all()
        for quiet, key in ((config, None), (SMALL, jax.random.key(1))):
            forward, tree = self.twin.pure(self.twin.forward(quiet), quiet, params)
            assert "random_bits" not in str(jax.make_jaxpr(forward)(tree, batch, key))
