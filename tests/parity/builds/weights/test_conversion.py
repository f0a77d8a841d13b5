"""Checkpoints of one side become checkpoints of the other, bit for bit, or nothing is written."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

import parity
from parity.builds.convert.conversion import convert
from parity.builds.convert.exported import read_map
from parity.builds.convert.stored import read_stored
from parity.builds.skeleton import fill, skeleton
from parity.builds.tree import flatten, same_bits, to_host
from parity.builds.weights.transforms import Split
from parity.compare.certificate import certify, export
from parity.compare.evidence import Evidence
from parity.compare.session import Session

# B batch, D in, H hidden, F out, L layers
B, D, H, F, L = 4, 6, 5, 3, 3
TX = optax.chain(optax.clip(1.0), optax.adam(1e-2))


class LinenMlp(linen.Module):
    dtype: str = "float32"

    @linen.compact
    def __call__(self, x):
        query, key, value = jnp.split(linen.Dense(3 * H, name="qkv", param_dtype=self.dtype)(x), 3, axis=-1)
        return linen.Dense(F, name="out", param_dtype=self.dtype)(query * jnp.tanh(key) + value)


class NnxMlp(nnx.Module):
    def __init__(self, rngs, dtype="float32"):
        self.query, self.key, self.value = (nnx.Linear(D, H, rngs=rngs, param_dtype=dtype) for _ in range(3))
        self.out = nnx.Linear(H, F, rngs=rngs, param_dtype=dtype)
        self.drop = nnx.Dropout(0.5, deterministic=True, rngs=rngs)

    def __call__(self, x):
        return self.out(self.drop(self.query(x) * jnp.tanh(self.key(x)) + self.value(x)))


RULES = [
    parity.Rule(
        reference=(rf"(.*)qkv/{leaf}",),
        candidate=tuple(rf"\1{name}/{leaf}" for name in ("query", "key", "value")),
        transform=Split(axis=axis, sizes=(H, H, H)),
    )
    for leaf, axis in (("kernel", 1), ("bias", 0))
]


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, size)).astype("float32") for name, size in (("x", D), ("y", F))}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


def exported(linen, nnx, path, rules=()):
    pair = parity.twins(
        "own", linen=linen, nnx=nnx, inputs=inputs, loss=loss, optimizer=TX, weight_rules=rules
    )
    (case,) = [case for case in pair.cases({}) if case.program == "train_step"]
    work = Evidence.of(case, Session())
    path.write_text(json.dumps(export(work, certify(work)).as_json()))
    return read_map(path)


def train_state(module):
    state = TrainState.create(
        apply_fn=module.apply, params=module.init(jax.random.key(1), inputs(0)["x"])["params"], tx=TX
    )
    for seed in range(2):
        batch = inputs(seed)
        grads = jax.grad(lambda params, b=batch: loss(module.apply({"params": params}, b["x"]), b))(
            state.params
        )
        state = state.apply_gradients(grads=grads)
    return state


def trained(dtype="float32"):
    model = NnxMlp(nnx.Rngs(2), dtype)
    return model, nnx.Optimizer(model, TX, wrt=nnx.Param)


def save(folder, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, tree)
    return folder


def restore(folder, like):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(folder, jax.tree.map(ocp.utils.to_shape_dtype_struct, like))


def no_rng(model):
    return nnx.state(model, nnx.Not(nnx.RngState))


@pytest.fixture(scope="module")
def fused(tmp_path_factory):
    return exported(LinenMlp, NnxMlp, tmp_path_factory.mktemp("map") / "map.json", RULES)


@pytest.fixture(scope="module")
def saved_state(tmp_path_factory):
    return save(tmp_path_factory.mktemp("saved") / "linen", train_state(LinenMlp()))


@pytest.fixture
def linen_state(saved_state, tmp_path):
    return shutil.copytree(saved_state, tmp_path / "linen")


@pytest.mark.long
def test_a_train_state_becomes_a_model_with_its_optimizer_and_comes_back(fused, linen_state, tmp_path):
    before = train_state(LinenMlp())
    done = convert(fused, linen_state, tmp_path / "nnx")
    assert dict(done.roles) == {"params": 8, "optimizer": 18} and done.moved == 6
    assert done.retyped == ("optimizer/step int64 -> uint32 (2)",)  # TrainState counts in a Python integer
    assert done.missing == ("model/drop/rngs/count", "model/drop/rngs/key") and not done.left

    model, optimizer = trained()
    got = restore(tmp_path / "nnx", {"model": no_rng(model), "optimizer": nnx.state(optimizer)})
    nnx.update(model, got["model"])
    nnx.update(optimizer, got["optimizer"])
    x = inputs(7)["x"]
    np.testing.assert_allclose(model(x), LinenMlp().apply({"params": before.params}, x), rtol=1e-5)
    np.testing.assert_array_equal(
        optimizer.opt_state[1][0].mu["key"]["kernel"][...],
        before.opt_state[1][0].mu["qkv"]["kernel"][:, H : 2 * H],
    )
    save(tmp_path / "own", {"model": nnx.state(model), "optimizer": nnx.state(optimizer)})
    back = convert(fused, tmp_path / "own", tmp_path / "back")
    assert back.left == ("model/drop/rngs/count", "model/drop/rngs/key")
    again = restore(tmp_path / "back", before.replace(step=jnp.zeros((), jnp.uint32)))
    assert jax.tree.structure(again.opt_state) == jax.tree.structure(before.opt_state) and again.step == 2
    for one, other in zip(jax.tree.leaves(again)[1:], jax.tree.leaves(before)[1:], strict=True):
        assert same_bits(np.asarray(one), np.asarray(other))


@pytest.mark.long
@pytest.mark.parametrize("form", ["params", "bare", "py_tree", "zarr", "manager", "item"])
def test_any_writer_is_accepted(fused, tmp_path, form):
    state, source = train_state(LinenMlp()), tmp_path / "source"
    if form in ("manager", "item"):
        saved = ocp.args.Composite(state=ocp.args.StandardSave(state), note=ocp.args.JsonSave({"a": 1}))
        with ocp.CheckpointManager(source) as manager:
            for step, args in ((9, saved), (10, saved)):
                manager.save(step, args=args)
            manager.wait_until_finished()
        source = source / "9/state" if form == "item" else source
    elif form == "py_tree":
        ocp.PyTreeCheckpointer().save(source, state)
    elif form == "zarr":
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
            checkpointer.save(source, args=ocp.args.PyTreeSave(state))
    else:
        save(source, {"params": state.params} if form == "params" else state.params)
    done = convert(fused, source, tmp_path / "nnx", root="model")
    model, _ = trained()
    nnx.update(model, restore(tmp_path / "nnx", no_rng(model)))
    np.testing.assert_array_equal(model.key.bias[...], state.params["qkv"]["bias"][H : 2 * H])
    assert dict(done.roles) == {"params": 8} and not done.retyped  # of the branch's state
    assert done.read.name == {"manager": "state", "item": "state"}.get(form, "source")
    if form == "manager":
        assert done.read.parent.name == "10"


# --- stacks and bfloat16 ---


class Layer(linen.Module):
    @linen.compact
    def __call__(self, x, _):
        return jnp.tanh(linen.Dense(D, name="dense", param_dtype="bfloat16", dtype="float32")(x)), None


class Scanned(linen.Module):
    @linen.compact
    def __call__(self, x):
        scan = linen.scan(Layer, variable_axes={"params": 1}, split_rngs={"params": True}, length=L)
        return linen.Dense(F, name="out")(scan(name="layers")(x, None)[0])


class Unrolled(nnx.Module):
    def __init__(self, rngs):
        dense = lambda: nnx.Linear(D, D, param_dtype="bfloat16", dtype="float32", rngs=rngs)  # noqa: E731
        self.layers = nnx.List([nnx.Dict(dense=dense()) for _ in range(L)])
        self.out = nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = jnp.tanh(layer["dense"](x))
        return self.out(x)


@pytest.mark.long
def test_a_stack_in_bfloat16_is_cut_and_put_together_again(tmp_path):
    found = exported(Scanned, Unrolled, tmp_path / "map.json")
    source = save(tmp_path / "linen", train_state(Scanned()))
    done = convert(found, source, tmp_path / "nnx")
    assert done.moved == 6
    cut, whole = read_stored(tmp_path / "nnx").arrays, read_stored(source).arrays
    kernel = cut["model/layers/1/dense/kernel"]
    assert kernel.dtype == jnp.bfloat16 and same_bits(kernel, whole["params/layers/dense/kernel"][:, 1])
    assert same_bits(
        cut["optimizer/opt_state/1/0/mu/layers/2/dense/bias"],
        whole["opt_state/1/0/mu/layers/dense/bias"][:, 2],
    )
    convert(found, tmp_path / "nnx", tmp_path / "back")
    again = read_stored(tmp_path / "back").arrays
    assert set(again) == set(whole)
    assert all(same_bits(again[path], whole[path]) for path in whole if path != "step")
    kernels = [path for path in cut if path.endswith("kernel")]
    assert len(kernels) == 3 * (L + 1)


# --- refused conversions ---


def altered(linen_state, tmp_path, change):
    with ocp.StandardCheckpointer() as checkpointer:
        tree = checkpointer.restore(linen_state)
    change(tree)
    return save(tmp_path / "altered", tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["params"]["qkv"].pop("bias"), "that are missing: params/qkv/bias"),
        (lambda tree: tree["opt_state"][1][0]["mu"].pop("qkv"), "missing: opt_state/1/0/mu/qkv/bias, opt_"),
        (lambda tree: tree["params"].update(more=np.ones(3)), "linen own does not have: params/more;"),
        (
            lambda tree: tree["params"]["out"].update(bias=np.ones(4, "float32")),
            "params/out/bias: got float32[4], expected float32[3]",
        ),
        (
            lambda tree: tree["params"]["out"].update(bias=np.ones(3, "float16")),
            "params/out/bias: got float16[3], expected float32[3]",
        ),
        (lambda tree: tree.update(step=np.asarray(2**40)), "step: got int64[], expected uint32[]"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(fused, linen_state, tmp_path, change, words):
    source = altered(linen_state, tmp_path, change)
    there = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="expected") as caught:
        convert(fused, source, tmp_path / "nnx")
    assert words in str(caught.value)
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.long
def test_a_damaged_checkpoint_is_refused_or_its_numbers_are_right(fused, linen_state, tmp_path):
    convert(fused, linen_state, tmp_path / "right")
    right, refused = read_stored(tmp_path / "right").arrays, 0
    for path in sorted(path for path in linen_state.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for damage in (
            lambda path=path, whole=whole: path.write_bytes(whole[: len(whole) // 2]),
            path.unlink,
        ):
            damage()
            there = sorted(tmp_path.iterdir())
            try:
                convert(fused, linen_state, tmp_path / "nnx")
            except ValueError as error:
                assert str(linen_state) in str(error) and "expected" in str(error)
                assert sorted(tmp_path.iterdir()) == there
                refused += 1
            else:
                got = read_stored(tmp_path / "nnx").arrays
                assert set(got) == set(right) and all(same_bits(got[name], right[name]) for name in got)
                shutil.rmtree(tmp_path / "nnx")
            path.write_bytes(whole)
    assert refused >= 6


def test_a_guess_is_refused_unless_something_confirmed_it(fused, linen_state, tmp_path):
    record = fused.as_json()
    for entry in record["entries"]:
        if "out/kernel" in entry["reference"][0]:
            entry.update(matched_by="shape and nearest name", confirmed_by="one-to-one")
    (tmp_path / "map.json").write_text(json.dumps(record))
    with pytest.raises(
        ValueError, match=r"3 of 14 entries are only guessed: .*params/out/kernel with model/out/"
    ):
        convert(read_map(tmp_path / "map.json"), linen_state, tmp_path / "nnx")
    for entry in record["entries"]:
        entry["confirmed_by"] = "proof"
    (tmp_path / "map.json").write_text(json.dumps(record))
    convert(read_map(tmp_path / "map.json"), linen_state, tmp_path / "nnx")


def test_existing_files_are_kept(fused, linen_state, tmp_path):
    (tmp_path / "nnx").mkdir()
    with pytest.raises(ValueError, match="nnx: already exists, expected a new folder"):
        convert(fused, linen_state, tmp_path / "nnx")
    with pytest.raises(ValueError, match="nowhere is no folder that can be written to"):
        convert(fused, linen_state, tmp_path / "nowhere" / "nnx")
    with pytest.raises(ValueError, match="got no folder, expected an Orbax checkpoint"):
        convert(fused, tmp_path / "absent", tmp_path / "new")
    with pytest.raises(ValueError, match="got no _METADATA, expected a checkpoint"):
        convert(fused, tmp_path / "nnx", tmp_path / "new")
    with pytest.raises(ValueError, match="--root decoder: got decoder, expected one of model, optimizer"):
        convert(fused, linen_state, tmp_path / "new", root="decoder")
    bare = save(tmp_path / "bare", train_state(LinenMlp()).params)
    with pytest.raises(ValueError, match=r"--root optimizer: got none of its leaves in .*bare"):
        convert(fused, bare, tmp_path / "new", root="optimizer")
    with pytest.raises(ValueError, match="--to 'torch': expected one of reference, candidate, linen, nnx"):
        convert(fused, linen_state, tmp_path / "new", to="torch")


@pytest.mark.long
def test_a_dtype_that_cannot_be_kept_is_refused(tmp_path):
    found = exported(LinenMlp, lambda rngs: NnxMlp(rngs, "bfloat16"), tmp_path / "map.json", RULES)
    with pytest.raises(
        ValueError, match=r"expected bfloat16\[.*of nnx own; numbers would not stay what they are"
    ):
        convert(found, save(tmp_path / "linen", train_state(LinenMlp())), tmp_path / "nnx")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(schema=2), "Invalid enum value 2 - at `$.schema`"),
        (lambda record: record.update(kind="report"), "Invalid enum value 'report' - at `$.kind`"),
        (
            lambda record: record["entries"].pop(),
            "are not in one entry each; expected a total one-to-one map",
        ),
        (lambda record: record["entries"].append(record["entries"][0]), "are not in one entry each"),
        (
            lambda record: record["entries"][0].pop("transform"),
            "damaged (Object missing required field `transform`",
        ),
        (
            lambda record: record["entries"][0]["transform"].update(kind="Rotate"),
            "damaged (got transform Rotate, expected one of",
        ),
        (
            lambda record: record["entries"][0].update(transform={"kind": "Permute", "order": ["0"]}),
            "damaged (Expected `int`, got `str` - at `$.order[0]`",
        ),
        (lambda record: record["candidate"]["tree"].pop("model"), "its tree does not hold its leaves"),
        (lambda record: record.pop("alone"), "damaged (Object missing required field `alone`"),
    ],
)
def test_a_map_that_does_not_hold_together_is_refused(fused, tmp_path, change, words):
    record, path = json.loads(json.dumps(fused.as_json())), tmp_path / "map.json"
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError) as caught:
        read_map(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_a_map_survives_the_file(fused, tmp_path):
    (tmp_path / "map.json").write_text(json.dumps(fused.as_json()))
    assert read_map(tmp_path / "map.json") == fused


@jax.tree_util.register_static
class Options:
    """A node without arrays."""


def test_a_skeleton_leaves_out_what_has_no_arrays():
    tree = {"a": np.ones(2), "options": Options(), "rows": [Options(), np.ones(3)]}
    assert skeleton(tree) == {"a": "a", "rows": ["rows/1"]}


def test_a_skeleton_keeps_sequences_and_empty_containers():
    state = {"a": [jnp.ones(1), optax.EmptyState()], "b": {}, "c": None, "d": (jnp.ones(2),)}
    assert skeleton(state) == {"a": ["a/0", None], "b": {}, "c": None, "d": ["d/0"]}


# --- our own decoder, with keys in its state ---


@pytest.mark.long
@pytest.mark.parametrize("variant", ["llama2-scan-against-unroll-nnx", "llama2-scan-against-unroll-linen"])
def test_a_decoder_of_layers_in_one_array_becomes_one_of_single_layers(variant, tmp_path):
    from parity.matrix.llama2 import PAIR

    (case,) = [case for case in PAIR.cases({}) if case.id == f"{variant}/train_step@single"]
    work = Evidence.of(case, Session())
    found = export(work, certify(work))
    states = [build.create(jax.random.key(3)) for build in work.builds]
    save(tmp_path / "scan", fill(work.builds[0].skeleton, states[0]))
    convert(found, tmp_path / "scan", tmp_path / "unroll")
    convert(found, tmp_path / "unroll", tmp_path / "back")
    one, other = (to_host(restored(tmp_path / name, work.builds[0], states[0])) for name in ("scan", "back"))
    assert all(same_bits(one[path], other[path]) for path in one) and len(one) == len(states[0]) > 40
    loaded = restored(tmp_path / "unroll", work.builds[1], states[1])
    assert {path: leaf.dtype for path, leaf in loaded.items()} == {
        path: leaf.dtype for path, leaf in states[1].items()
    }


def restored(folder, build, state):
    tree = restore(folder, fill(build.skeleton, state))
    return {path.removesuffix("/value"): leaf for path, leaf in flatten(tree).items()}
