"""`PathRngs` and `fold_path`: Flax's rule, counters, splits, errors."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from oracle_decoder import SMALL, random_batch, random_params
from twin_nnx import TWIN

from models_nnx.dropout import Dropout
from models_nnx.rngs import PathRngs, fold_path

KEY = jax.random.key(11)
PATHS = [(), ("decoder",), ("decoder", "layers_3", "attention", "query"), ("é", "x" * 70)]
COUNTS = [1, 2, 255, 256, 70_000]


def data(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def linen_key(path, count):
    """Returns the key of Linen's ``make_rng`` in the module at ``path`` on the ``count``-th call."""
    scope = flax.core.Scope({}, rngs={"dropout": KEY})
    for name in path:
        scope = scope.push(name)
    scope.rng_counters["dropout"] = count - 1
    return scope.make_rng("dropout")


@pytest.mark.parametrize("separator", [False, True])
def test_fold_path_is_the_rule_of_flax(separator):
    before = flax.config.flax_fix_rng_separator
    flax.config.update("flax_fix_rng_separator", separator)
    try:
        for path in PATHS:
            for count in COUNTS:
                assert data(fold_path(KEY, path, count)) == data(linen_key(path, count))
        joined = data(fold_path(KEY, ("ab", "c"), 1)) == data(fold_path(KEY, ("a", "bc"), 1))
        assert joined != separator
    finally:
        flax.config.update("flax_fix_rng_separator", before)


def test_keys_differ_by_path_count_stream_and_root():
    keys = {data(fold_path(KEY, path, count)) for path in PATHS for count in COUNTS}
    assert len(keys) == len(PATHS) * len(COUNTS)
    rngs = PathRngs({"params": KEY, "dropout": jax.random.key(12)})
    assert data(rngs.draw("params")) != data(rngs.draw("dropout"))


def test_draws_count_by_stream_and_path_wherever_they_are_made():
    rngs = PathRngs({"params": KEY, "dropout": KEY})
    child = rngs.at("decoder").at("mlp")
    assert child.path == ("decoder", "mlp") and rngs.path == ()
    first = child.draw("params")
    assert data(first) == data(fold_path(KEY, ("decoder", "mlp"), 1))
    again = rngs.at("decoder").at("mlp").draw("params")
    assert data(again) == data(fold_path(KEY, ("decoder", "mlp"), 2))
    assert data(rngs.draw("params", ("decoder", "mlp"))) == data(fold_path(KEY, ("decoder", "mlp"), 3))
    assert data(child.draw("dropout")) == data(first)
    assert data(rngs.draw("params")) == data(fold_path(KEY, (), 1))


def test_split_gives_each_layer_separate_streams_and_using_starts_again():
    rngs = PathRngs({"params": KEY, "dropout": jax.random.key(12)}, ("decoder", "layers"))
    rngs.draw("params")
    split = rngs.split(5)
    assert set(split) == {"params", "dropout"}
    for name, root in rngs.streams.items():
        np.testing.assert_array_equal(
            jax.random.key_data(split[name]), jax.random.key_data(jax.random.split(root, 5))
        )
    layers = [rngs.using({name: keys[i] for name, keys in split.items()}) for i in range(5)]
    drawn = [layer.at("mlp").draw("params") for layer in layers]
    assert len({data(key) for key in drawn}) == 5
    assert data(drawn[2]) == data(fold_path(split["params"][2], ("decoder", "layers", "mlp"), 1))


def test_a_missing_stream_names_its_place_and_the_streams_given():
    rngs = PathRngs({"params": KEY, "noise": KEY}).at("decoder").at("mlp")
    with pytest.raises(
        KeyError, match=r"no stream 'dropout' at decoder/mlp; there are \['noise', 'params'\]"
    ):
        rngs.draw("dropout")


def test_dropout_without_rngs_names_its_place_and_the_missing_argument():
    layer = Dropout(0.5, rngs=PathRngs({}).at("block").at("mlp_dropout"))
    with pytest.raises(ValueError, match=r"block/mlp_dropout: got rngs=None .* 'dropout'; pass rngs"):
        layer(jnp.ones(3), False, None)
    assert layer(jnp.ones(3), True, None).sum() == 3
    with pytest.raises(KeyError, match="no stream 'dropout' at block/mlp_dropout"):
        layer(jnp.ones(3), False, PathRngs({"params": KEY}))


@pytest.mark.slow
def test_a_model_without_a_dropout_key_refuses_to_drop():
    config = dataclasses.replace(SMALL, dropout=0.5)
    model = TWIN.model(config, random_params(config))
    batch = random_batch(config.vocab)
    with pytest.raises(ValueError, match="Dropout at decoder/layers/attention_dropout: got rngs=None"):
        model(batch["tokens"], batch["segments"], batch["positions"], False)


class Masks(linen.Module):
    """A scan body that returns the mask of its dropout."""

    @linen.compact
    def __call__(self, x, _):
        return x, linen.Dropout(0.5, deterministic=False, name="drop")(x)


@pytest.mark.slow
@pytest.mark.parametrize(("checked", "draws"), [(True, 2), (False, 1)])
def test_a_scan_of_linen_drops_by_its_second_draw_unless_it_is_traced_once(checked, draws):
    """As docs/migration.md says under "Equal keys"."""
    key, x = jax.random.key(3), jnp.ones(64)
    layers = linen.scan(Masks, split_rngs={"dropout": True}, length=3, check_constancy_invariants=checked)

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            return layers(name="layers")(x, None)[1]

    masks = Model().apply({}, x, rngs={"dropout": key})
    rngs = PathRngs({"dropout": key}).at("layers")
    keys = rngs.split(3)["dropout"]
    for layer in range(3):
        drawn = rngs.using({"dropout": keys[layer]}).at("drop")
        mask = [jax.random.bernoulli(drawn.draw("dropout"), 0.5, x.shape) for _ in range(draws)][-1]
        np.testing.assert_array_equal(masks[layer] > 0, mask)
