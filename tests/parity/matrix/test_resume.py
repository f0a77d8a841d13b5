"""Training continues from a checkpoint without a difference; serving uses the trained parameters."""

import copy
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import models_linen.checkpoint
import models_linen.decode
import models_linen.train
import models_nnx.checkpoint
import models_nnx.decode
import models_nnx.train
from models_nnx.model import LanguageModel
from models_nnx.rngs import PathRngs
from models_nnx.shared import store
from models_nnx.shared.config import DecodeConfig, LayerLayout, TrainConfig
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.store import CheckpointError
from parity.builds import tree
from parity.builds.build import Flavour
from parity.matrix.training import Trainer, training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick")]
WITH_EMITTERS = pytest.mark.usefixtures("compiled_as_users_do")

N = 2
PLAIN = {"pipeline": "none", "dropout": "0.2", "layers": "2", "train.optimizer.warmup_steps": "1"}
UNEQUAL = {**PLAIN, "train.accumulation": "3", "train.optimizer.spike_window": "2"}
MTP = {**PLAIN, "layers": "1", "mtp.depth": "2"}
ZERO1 = {"train.moments": "zero1", "diloco.momentum": "0.8"}
MID_PERIOD = {**PLAIN, **ZERO1, "diloco.period": "3"}
MID_FRAGMENT = {
    **PLAIN,
    **ZERO1,
    "diloco.period": "4",
    "diloco.fragments": "2",
    "diloco.delay": "1",
    "diloco.inner_share": "0.25",
}
RUNS = {
    "plain": (PLAIN, "fsdp2", N),
    "three unequal microbatches": (UNEQUAL, "fsdp2", N),
    "predictors": (MTP, "fsdp2", N),
    "a step after replicas synchronised": (MID_PERIOD, "replica2.data2-explicit", 4),
    "a fragment synchronised and not taken": (MID_FRAGMENT, "replica2.data2", 4),
}


def differing(left, right):
    return tree.differing(tree.to_host(left), tree.to_host(right))


@pytest.fixture(scope="module")
def quick():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def run(settings, mesh="fsdp2"):
    return training("llama2-70b", settings, mesh, (6, 32), seed=3)


def again(trainer, resume=None):
    """Returns another trainer of a run, from scratch or a checkpoint; nothing is compiled again."""
    other = copy.copy(trainer)
    other._begin(resume)
    return other


def trained(trainer, steps):
    return [trainer.advance() for _ in range(steps)]


@pytest.mark.long
@WITH_EMITTERS
@pytest.mark.parametrize("settings, mesh, steps", RUNS.values(), ids=RUNS)
def test_2n_steps_are_n_a_checkpoint_and_n_bit_for_bit(settings, mesh, steps, tmp_path):
    """It resumes in the same flavour and in the other, with dropout."""
    twins = {flavour: Trainer(flavour, run(settings, mesh)) for flavour in Flavour}
    expected = {flavour: trained(whole, 2 * steps) for flavour, whole in twins.items()}
    for saver, reader in itertools.product(Flavour, Flavour):
        first = again(twins[saver])
        assert trained(first, steps) == expected[saver][:steps]
        kept = first.save(tmp_path / f"{saver}-{reader}")
        resumed = again(twins[reader], kept)
        assert (resumed.done, differing(resumed.named(), first.named())) == (steps, [])
        assert trained(resumed, steps) == expected[reader][steps:] == expected[saver][steps:]
        assert differing(resumed.named(), twins[saver].named()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "mesh"),
    [
        ("three unequal microbatches", "data2.tensor2-explicit"),
        ("a fragment synchronised and not taken", "replica2.fsdp2.tensor2-explicit"),
    ],
)
def test_another_mesh_goes_on_within_the_floor(asked, mesh, tmp_path):
    """The restored bits are the saved ones; the steps after differ like two meshes from the same start."""
    settings, here, steps = RUNS[asked]
    whole = Trainer(Flavour.NNX, run(settings, here))
    trained(whole, steps)
    kept = whole.save(tmp_path)
    there = run(settings, mesh)
    moved = Trainer(Flavour.LINEN, there, kept)
    assert differing(moved.named(), whole.named()) == []
    assert {tuple(leaf.sharding.mesh.shape.items()) for leaf in moved.named().values()} == {there.mesh.axes}
    np.testing.assert_allclose(trained(moved, N), trained(whole, N), rtol=2e-6)


# --- placement ---


def unequal_places(found, wanted):
    """Returns the names of leaves that are on other devices, or split differently, than requested."""
    assert found.keys() == wanted.keys()
    return [
        name
        for name, leaf in found.items()
        if not leaf.sharding.is_equivalent_to(wanted[name], leaf.ndim)
        or leaf.sharding.mesh.axis_types != wanted[name].mesh.axis_types
    ]


def abstract_state(flavour, asked):
    """Returns a flavour's checkpoint module, and its train state without values."""
    key = jax.random.key(0)
    if flavour is Flavour.NNX:
        state = nnx.eval_shape(lambda: models_nnx.train.create(asked.config, asked.train, key))
        return models_nnx.checkpoint, nnx.state(state)
    batch = {name: jax.ShapeDtypeStruct((2, 8), "int32") for name in ("tokens", "segments", "positions")}
    create = functools.partial(models_linen.train.create, asked.config, asked.train, batch=batch)
    return models_linen.checkpoint, models_linen.train.unbox(jax.eval_shape(create, key))


def is_variable(leaf):
    return isinstance(leaf, nnx.Variable)


def places_of(tree, mesh):
    """A tree with a sharding for each leaf, or for each Variable: the split axis differs from leaf to leaf."""
    numbers = itertools.count()

    def place(leaf):
        axes = [axis for axis, size in enumerate(leaf.shape) if size % 4 == 0]
        chosen = axes[next(numbers) % len(axes)] if axes else None
        spec = ("a" if axis == chosen else None for axis in range(len(leaf.shape)))
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

    return jax.tree.map(place, tree, is_leaf=is_variable)


def placed(tree, places):
    """An abstract tree whose leaves have these shardings."""

    def one(leaf, place):
        if is_variable(leaf):
            return leaf.replace(one(leaf.get_value(), place))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

    return jax.tree.map(one, tree, places, is_leaf=is_variable)


def zeros(leaf):
    key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key(1) if key else jnp.zeros(leaf.shape, leaf.dtype)


@pytest.mark.parametrize("mode", ["Auto", "Explicit"])
@pytest.mark.parametrize("requested", ["places", "example"])
@pytest.mark.parametrize("flavour", Flavour)
def test_every_leaf_is_restored_where_it_is_requested(flavour, requested, mode, tmp_path):
    """It works for any mesh of the saved state, and for any placement, not only that of the rules."""
    mesh = jax.make_mesh((4,), ("a",), axis_types=(jax.sharding.AxisType[mode],))
    checkpoint, tree = abstract_state(flavour, run(PLAIN))
    folder = checkpoint.save(tmp_path / "one", jax.tree.map(zeros, tree))
    places = places_of(tree, mesh)
    example = placed(tree, places)
    arguments = (tree, places) if requested == "places" else (example,)
    wanted = {name: leaf.sharding for name, leaf in checkpoint.named(example).items()}
    assert unequal_places(checkpoint.named(checkpoint.restore(folder, *arguments)), wanted) == []
    assert sum(not place.is_fully_replicated for place in wanted.values()) > 10


FAULTS = {
    "missing": lambda leaves, name: leaves.pop(name),
    "too many": lambda leaves, name: leaves.update({f"{name}_too": leaves[name]}),
    "of another shape": lambda leaves, name: leaves.update({name: leaves[name][..., :-1]}),
    "of another dtype": lambda leaves, name: leaves.update({name: leaves[name].astype("float16")}),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("flavour", Flavour)
def test_a_checkpoint_with_another_leaf_is_refused(flavour, fault, tmp_path):
    checkpoint, tree = abstract_state(flavour, run(PLAIN))
    leaves = dict(checkpoint.named(jax.tree.map(zeros, tree)))
    name = max((name for name in leaves if "params/" in name), key=lambda name: (leaves[name].ndim, name))
    fault(leaves, name)
    folder = store.write(tmp_path / "one", leaves, kind=store.Kind.TRAIN_STATE, about={})
    example = placed(tree, places_of(tree, jax.make_mesh((4,), ("a",))))
    with pytest.raises(CheckpointError, match=name):
        checkpoint.restore(folder, example)


@pytest.mark.parametrize("flavour", Flavour)
def test_every_parameter_is_loaded_where_it_is_requested(flavour, tmp_path):
    config = dataclasses.replace(tiny(preset("mixtral-8x7b")), layers=1)
    graphdef, state = nnx.split(
        nnx.eval_shape(lambda: LanguageModel(config, rngs=PathRngs({"params": jax.random.key(2)})))
    )
    model = nnx.merge(graphdef, jax.tree.map(zeros, state))
    folder = models_nnx.checkpoint.export(tmp_path / "one", model)
    mesh = jax.make_mesh((4,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    checkpoint = {Flavour.LINEN: models_linen.checkpoint, Flavour.NNX: models_nnx.checkpoint}[flavour]
    nowhere = checkpoint.load_params(folder, config)
    tree = nnx.state(nowhere) if flavour is Flavour.NNX else nowhere
    places = places_of(tree, mesh)
    found = checkpoint.load_params(folder, config, places)
    found = nnx.state(found) if flavour is Flavour.NNX else found
    wanted = {name: leaf.sharding for name, leaf in checkpoint.named(placed(tree, places)).items()}
    assert unequal_places(checkpoint.named(found), wanted) == []
    assert sum(not place.is_fully_replicated for place in wanted.values()) > 5


@pytest.mark.long
@pytest.mark.parametrize("flavour", Flavour)
def test_a_resumed_run_continues_from_the_saved_state(flavour, tmp_path):
    for settings, mesh in (
        (PLAIN, "fsdp2.tensor2"),
        ({**PLAIN, **ZERO1, "diloco.period": "3"}, "replica2.data2-explicit"),
    ):
        trainer = Trainer(flavour, run(settings, mesh))
        fresh = {name: leaf.sharding for name, leaf in trainer.named().items()}
        resumed = again(trainer, trainer.save(tmp_path / mesh))
        assert unequal_places(resumed.named(), fresh) == []
        assert any(not place.is_fully_replicated for place in fresh.values())


# --- serving ---

DECODE = DecodeConfig(length=24)


def moved(config):
    """Returns a model in which every leaf differs from its initial value."""
    graphdef, state = nnx.split(LanguageModel(config, rngs=PathRngs({"params": jax.random.key(2)})))
    leaves, tree = jax.tree.flatten(state)
    keys = jax.random.split(jax.random.key(3), len(leaves))
    noise = [
        leaf + 0.05 * jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return nnx.merge(graphdef, jax.tree.unflatten(tree, noise))


def tokens_of(config, folder):
    """Returns the tokens that both flavours decode from an export."""
    prompt = jax.random.randint(jax.random.key(4), (3, 11), 0, config.vocab)
    lengths = jnp.array([11, 7, 4])
    variables = models_linen.checkpoint.load_params(folder, config)
    model = models_nnx.checkpoint.load_params(folder, config)

    @jax.jit
    def linen(variables):
        _, rows = models_linen.decode.prefill(config, DECODE, variables, prompt, lengths)
        return models_linen.decode.generate(config, DECODE, variables, rows, 9)[0]

    @nnx.jit
    def nnx_(model):
        _, rows = models_nnx.decode.prefill(DECODE, model, prompt, lengths)
        return models_nnx.decode.generate(DECODE, model, rows, 9)[0]

    return np.asarray(linen(variables)), np.asarray(nnx_(model))


@pytest.mark.long
def test_an_export_is_decoded_by_both_flavours_stacked_and_unrolled(tmp_path):
    """Latent caches, two stacks, and a routing bias that is no parameter."""
    config = dataclasses.replace(tiny(preset("deepseek3-671b")), layers=4, dense_layers=2)
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    model = moved(config)
    found = []
    for target in (config, unrolled):
        folder = models_nnx.checkpoint.export(tmp_path / str(target.layout), model, target)
        found += tokens_of(target, folder)
    for tokens in found[1:]:
        np.testing.assert_array_equal(tokens, found[0])
    assert len(np.unique(found[0])) > 5


@pytest.mark.long
def test_both_flavours_export_the_same_cast_and_refuse_another_model(tmp_path):
    config = tiny(preset("qwen3-8b"))
    narrow = dataclasses.replace(config, layout=LayerLayout.UNROLLED, param_dtype="bfloat16")
    model = moved(config)
    left = models_nnx.checkpoint.export(tmp_path / "nnx", model, narrow)
    variables = models_linen.checkpoint.load_params(
        models_nnx.checkpoint.export(tmp_path / "whole", model), config
    )
    right = models_linen.checkpoint.export(tmp_path / "linen", config, variables, narrow)
    loaded = [
        models_linen.checkpoint.named(models_linen.checkpoint.load_params(one, narrow))
        for one in (left, right)
    ]
    assert differing(*loaded) == []
    assert {str(leaf.dtype) for leaf in loaded[0].values()} == {"bfloat16"}
    kernel = np.asarray(model.decoder.layers.mlp.up.kernel[...])
    np.testing.assert_array_equal(
        loaded[0]["params/decoder/layers_2/mlp/up/kernel"], kernel[:, 2].astype("bfloat16")
    )
    with pytest.raises(CheckpointError, match="differs in layers"):
        models_nnx.checkpoint.export(tmp_path / "other", model, dataclasses.replace(narrow, layers=3))
    with pytest.raises(
        CheckpointError,
        match=r"params/decoder/layers_0/mlp/up/kernel: got bfloat16\[48, 80\], expected float32",
    ):
        models_nnx.checkpoint.load_params(left, dataclasses.replace(narrow, param_dtype="float32"))


@pytest.mark.long
def test_a_full_state_is_no_export(tmp_path):
    config = dataclasses.replace(tiny(preset("llama2-70b")), layers=2)
    state = models_nnx.train.create(config, TrainConfig(), jax.random.key(0))
    folder = models_nnx.checkpoint.save(tmp_path / "state", state)
    with pytest.raises(CheckpointError, match="got train state, expected parameters"):
        models_linen.checkpoint.load_params(folder, config)
