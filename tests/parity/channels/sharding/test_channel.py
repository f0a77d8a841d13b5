"""The sharding channel: its oracle, its count of constraints, metadata changed by the program, compiled placements."""

import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import parity
from models_nnx.shared.sharding import DEFAULT_RULES, MESH_AXES, resolve
from parity.builds.build import linen_build
from parity.builds.meshes import MeshSpec
from parity.builds.tree import Leaf, Role
from parity.builds.weights.inference import infer
from parity.cases.shared import linen_spec
from parity.channels.sharding import constraints, sharding
from parity.compare.backends.registry import find
from parity.compare.clock import Clock
from parity.compare.layout import Placed, entries
from parity.compare.side import Side

P = PartitionSpec
WHOLE, SPLIT = P(None, None), P("fsdp", "tensor")
many = settings(max_examples=600, deadline=None, database=None, derandomize=True)


# --- the oracle ---

NAMES = ("embed", "mlp", "heads", "vocab", "layers")


def leaf(names, shape, spec=WHOLE):
    return Placed(
        leaf=Leaf(path="w", shape=shape, dtype="float32", role=Role.PARAMS, logical_axes=names),
        spec=spec,
        bytes_per_device=0,
        why="",
    )


@st.composite
def tables(draw):
    """Rules, a mesh whose axes may not match the rules, and a tensor that every choice of axes divides."""
    mesh = {axis: draw(st.sampled_from((1, 2, 3))) for axis in draw(st.permutations(MESH_AXES))[:5]}
    several = st.lists(st.sampled_from(MESH_AXES), min_size=1, max_size=3, unique=True).map(tuple)
    axes = st.none() | st.sampled_from(MESH_AXES) | several
    rules = tuple(draw(st.lists(st.tuples(st.sampled_from(NAMES), axes), max_size=12)))
    names = tuple(draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)))
    names = tuple(name if draw(st.integers(0, 5)) else None for name in names)
    return mesh, rules, names


@pytest.mark.long
@many
@given(tables())
def test_the_oracle_agrees_with_the_resolver_of_the_twins(table):
    mesh, rules, names = table
    shape = (6**3,) * len(names)
    abstract = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    spec = resolve(names, shape, rules, abstract)
    found = entries(linen_spec(names, rules, mesh), len(names))
    assert tuple(tuple(axis for axis in part if mesh[axis] > 1) for part in found) == entries(
        spec, len(names)
    )


def test_the_oracle_differs_if_rules_are_lost():
    sizes = {"fsdp": 2, "fsdp_transpose": 2}
    kernel = ("embed", "heads")
    assert linen_spec(kernel, DEFAULT_RULES, sizes) == P(("fsdp", "fsdp_transpose"), None)
    assert linen_spec(kernel, tuple(dict(DEFAULT_RULES).items()), sizes) == P("fsdp_transpose", None)


@pytest.mark.parametrize(
    ("spec", "rank", "expected"),
    [
        (P(), 2, ((), ())),
        (P("a"), 2, (("a",), ())),
        (P("a", None), 2, (("a",), ())),
        (P(None, ("a", "b")), 2, ((), ("a", "b"))),
        (P(("a",)), 1, (("a",),)),
        (P(), 0, ()),
    ],
)
def test_specs_by_dimension(spec, rank, expected):
    assert entries(spec, rank) == expected


# --- constraints ---

T, D, LAYERS = 8, 12, 3


def side_of(function, mesh, *, spec=SPLIT):
    """A side with one kernel and one input, ``function(kernel, x)``."""
    build = linen_build(
        "toy",
        lambda key: {
            "params": {"w": linen.Partitioned(jax.random.normal(key, (LAYERS, D, D)), (None, "in", "out"))}
        },
        {"forward": (lambda state, batch: {"values": {"y": function(state["params"]["w"], batch["x"])}}, {})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(T, D)).astype(np.float32)},
        specs=lambda state, mesh: {"params": {"w": P(None, *spec)}},
        input_specs=lambda batch, mesh: {"x": P("fsdp")},
    )
    return Side(build, build.programs["forward"], MeshSpec.parse(mesh), find("cpu"), Clock())


def put(x, spec, mesh):
    explicit = mesh.endswith("explicit")
    return jax.sharding.reshard(x, spec) if explicit else jax.lax.with_sharding_constraint(x, spec)


def scanned(mesh, *, inside=SPLIT):
    """Two constraints in a rematerialised scan body, one before it, one after, one on another shape."""

    def layer(x, w):
        w = put(w, P(None, None), mesh)
        h = put(jnp.tanh(x @ w), inside, mesh)
        return put(h, P("fsdp", None), mesh), None

    def function(w, x):
        x = put(x, P("fsdp", None), mesh)
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, w)
        return put(x, WHOLE, mesh)

    return function


@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_constraints_are_counted_through_jit_scan_and_checkpoint(mode):
    mesh = f"fsdp4.tensor2-{mode}"
    found = constraints(side_of(scanned(mesh), mesh))
    assert {key: len(lines) for key, lines in found.items()} == (
        {
            ("float32[8, 12]", str(P("fsdp", None))): 2,
            ("float32[8, 12]", str(P("fsdp", "tensor"))): 1,
            ("float32[8, 12]", str(P(None, None))): 1,
            ("float32[12, 12]", str(P(None, None))): 1,
        }
    )


def sentences(reference, candidate, *, proved=True):
    weights = infer(reference.build.leaves, candidate.build.leaves)
    sides = reference, candidate
    evidence = types.SimpleNamespace(
        sides=sides,
        weights=weights,
        same_program=False,
        proof_covers_compiled=proved,
        compiling=lambda: sides,
    )
    return [finding.sentence() for finding in sharding.judge(evidence).findings]


@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_one_finding_has_both_specs_of_a_constraint(mode):
    mesh = f"fsdp4.tensor2-{mode}"
    sides = side_of(scanned(mesh), mesh), side_of(scanned(mesh, inside=P(None, "tensor")), mesh)
    (sentence,) = sentences(*sides)
    assert sentence.startswith(
        f"constraints on float32[8, 12]: reference {P('fsdp', 'tensor')} 1 times, {P('fsdp', None)} 2 times"
    )
    assert f"candidate {P('fsdp', None)} 2 times, {P(None, 'tensor')} 1 times" in sentence
    assert sentences(sides[0], sides[0]) == []


def test_constraints_of_one_side_alone_are_a_program_outside_its_mesh():
    mesh = "fsdp4.tensor2-auto"
    with_them, without = side_of(scanned(mesh), mesh), side_of(lambda w, x: jnp.tanh(x @ w[0]), mesh)
    for sides, words in (
        ((with_them, without), "5 {0}, candidate 0 {0}"),
        ((without, with_them), "0 {0}, candidate 5 {0}"),
    ):
        (sentence,) = sentences(*sides)
        assert words.format("sharding constraints") in sentence and "outside its mesh or rules" in sentence
        side = "reference" if sides[0] is with_them else "candidate"
        assert f"the {side} constrains at tests/parity/channels/sharding/test_channel.py:" in sentence


def twice(w, x):
    return put(put(x, SPLIT, "fsdp4.tensor2-auto") + 1.0, SPLIT, "fsdp4.tensor2-auto")


def test_a_constraint_in_a_helper_is_named_with_its_caller():
    mesh = "fsdp4.tensor2-auto"
    (sentence,) = sentences(side_of(twice, mesh), side_of(lambda w, x: put(x, SPLIT, mesh) + 1.0, mesh))
    assert re.search(r"the reference constrains at \S+ in \S*put, called at \S+ in twice", sentence)


def test_a_constraint_on_a_scalar_places_nothing():
    mesh = "fsdp4.tensor2-auto"
    alone = side_of(lambda w, x: put(x.sum(), P(), mesh) + put(x, SPLIT, mesh), mesh)
    without = side_of(lambda w, x: x.sum() + put(x, SPLIT, mesh), mesh)
    assert sentences(alone, without) == []


# --- findings before a crash, and compiled places ---


def crash(w, x):
    raise RuntimeError("no trace")


def test_a_crash_with_nothing_found_stays_a_crash():
    mesh = "fsdp4.tensor2-auto"
    with pytest.raises(RuntimeError, match="no trace"):
        sentences(side_of(scanned(mesh), mesh), side_of(crash, mesh))


def test_specs_are_compared_before_a_crash():
    mesh = "fsdp4.tensor2-auto"
    sides = side_of(scanned(mesh), mesh), side_of(crash, mesh, spec=P("tensor", "fsdp"))
    (sentence,) = sentences(*sides)
    assert sentence.startswith(
        f"params/w: reference {P(None, 'fsdp', 'tensor')} from axes (None, 'in', 'out')"
    )
    assert f"candidate {P(None, 'tensor', 'fsdp')}" in sentence and "216 and 216 bytes per device" in sentence


def test_arguments_of_the_compiled_program_must_match_the_specs():
    """Both sides are compiled only if nothing is proved; then the state's placement is read from each executable."""
    mesh = "fsdp4.tensor2-auto"
    side = side_of(scanned(mesh), mesh)
    assert sentences(side, side) == [] and Side.compiled not in side.memo
    assert sentences(side, side, proved=False) == []
    assert side.compiled.input_shardings[0][0]["params/w"].spec == P(None, "fsdp", "tensor")
    covered = {"specs": {"params/w": P(None, "tensor", "fsdp")}, "compiled": side.compiled}
    other = type("Other", (Side,), covered)(side.build, side.program, side.mesh, side.backend, side.clock)
    found = sentences(other, other, proved=False)
    assert f"toy params/w: expected {P(None, 'tensor', 'fsdp')} by the rules" in found[0]
    assert f"the compiled program takes it as {P(None, 'fsdp', 'tensor')}" in found[0]


# --- a hard-coded scan axis in a model with two stacks ---

H, F = 20, 8
AXIS_RULES = (("in", "fsdp"), ("hidden", "tensor"), ("dense_layers", None), ("moe_layers", None))


class LinenLayer(linen.Module):
    @linen.compact
    def __call__(self, x, _):
        up = linen.with_logical_partitioning(linen.initializers.lecun_normal(), ("in", "hidden"))
        down = linen.with_logical_partitioning(linen.initializers.lecun_normal(), ("hidden", "in"))
        hidden = jnp.tanh(linen.Dense(H, kernel_init=up, use_bias=False, name="up")(x))
        return x + linen.Dense(D, kernel_init=down, use_bias=False, name="down")(hidden), None


class LinenStacks(linen.Module):
    @linen.compact
    def __call__(self, x):
        for name in ("dense_layers", "moe_layers"):
            stack = linen.scan(
                LinenLayer,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=LAYERS,
                metadata_params={linen.PARTITION_NAME: name},
            )
            x, _ = stack(name=name)(x, None)
        return linen.Dense(F, use_bias=False, name="out")(x)


def kernel(*axes):
    return nnx.with_metadata(nnx.initializers.lecun_normal(), out_sharding=axes, eager_sharding=False)


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(D, H, kernel_init=kernel("in", "hidden"), use_bias=False, rngs=rngs)
        self.down = nnx.Linear(H, D, kernel_init=kernel("hidden", "in"), use_bias=False, rngs=rngs)

    def __call__(self, x):
        return x + self.down(jnp.tanh(self.up(x)))


class NnxStacks(nnx.Module):
    """Removes the stacked axis from the metadata for its scan, and restores it under the name ``scan_name``."""

    def __init__(self, rngs, scan_name=lambda stack: stack):
        self.scan_name = scan_name
        self.dense_layers, self.moe_layers = (
            self.stack(rngs, name) for name in ("dense_layers", "moe_layers")
        )
        self.out = nnx.Linear(D, F, use_bias=False, rngs=rngs)

    @staticmethod
    def stack(rngs, name):
        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap(in_axes=0, out_axes=0, transform_metadata={nnx.PARTITION_NAME: name})
        def create(rngs):
            return NnxLayer(rngs)

        return create(rngs)

    def __call__(self, x):
        for stack in ("dense_layers", "moe_layers"):
            module, name = getattr(self, stack), self.scan_name(stack)
            variables = jax.tree.leaves(
                nnx.state(module), is_leaf=lambda node: isinstance(node, nnx.Variable)
            )
            assert len(variables) == 2
            self.rename(module, lambda axes: axes[1:])
            graphdef, params = nnx.split(module)
            x, _ = jax.lax.scan(
                lambda x, params, graphdef=graphdef: (nnx.merge(graphdef, params)(x), None), x, params
            )
            self.rename(module, lambda axes, name=name: (name, *axes))
        return self.out(x)

    @staticmethod
    def rename(module, change):
        for linear in (module.up, module.down):
            linear.kernel.set_metadata(out_sharding=change(linear.kernel.get_metadata()["out_sharding"]))


def words_in(sentences, *words):
    """Returns the findings that have all the words."""
    return [sentence for sentence in sentences if all(word in sentence for word in words)]


def stacks_case(scan_name, program="forward"):
    def inputs(seed):
        rng = np.random.default_rng(seed)
        return {"x": rng.normal(size=(8, D)).astype(np.float32)}

    pair = parity.twins(
        "stacks",
        linen=LinenStacks,
        nnx=functools.partial(NnxStacks, scan_name=scan_name),
        inputs=inputs,
        loss=lambda outputs, batch: jnp.mean(outputs**2),
        axis_rules=AXIS_RULES,
        meshes=("fsdp4.tensor2-auto",),
    )
    return next(case for case in pair.cases({}) if f"/{program}@" in case.id)


@pytest.mark.slow
def test_a_scan_axis_under_a_hard_coded_name_with_two_stacks(seen):
    found = seen(stacks_case(lambda stack: "layers"))
    assert found["tree"] == []
    assert len(found["sharding"]) == 4
    for stack in ("dense_layers", "moe_layers"):
        assert words_in(
            found["sharding"],
            f"nnx stacks model/{stack}/up/kernel: it has logical axes ('{stack}', 'in', 'hidden') before",
            "logical axes ('layers', 'in', 'hidden') after",
            "logical axes changed by running the program",
        )


def test_each_stack_has_its_name(seen):
    assert seen(stacks_case(lambda stack: stack)) == {"tree": [], "sharding": []}
