"""Pairs of arguments and results by the weight map, with leaves that only one side has."""

import inspect
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.build import linen_build
from parity.builds.tree import Role
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Identity
from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.pairing import pair_positions
from parity.compare.session import Session

WIDTH = 3


def test_a_leaf_without_partner_may_have_the_name_that_another_leaf_is_renamed_to():
    """The candidate's own ``rngs/count`` has no partner; its ``count`` is the reference's ``rngs/count``."""
    entry = Entry(
        reference=("rngs/count",),
        candidate=("count",),
        transform=Identity(),
        role=Role.RNG,
        matched_by="path",
    )
    weights = WeightMap(entries=(entry,), alone=((), ("rngs/count",)))
    one, two = ("state", "rngs/count"), ("state", "count")
    reference = SimpleNamespace(read_arguments={0: one}, results=[one])
    candidate = SimpleNamespace(read_arguments={0: one, 1: two}, results=[one, two])
    pairing = pair_positions(reference, candidate, weights)
    assert pairing.arguments == pairing.results == [(0, 1)]
    assert pairing.alone.arguments == pairing.alone.results == ((), (0,))
    assert not pairing.unmatched


def counting(dtype, by):
    """A build of one program that counts its calls in a dtype."""

    def step(state, inputs):
        return {"state": {"step": state["step"] + jnp.asarray(by, dtype)}, "values": {"y": inputs["x"] + 1}}

    return linen_build(
        "counting",
        lambda key: {"step": jnp.zeros((), dtype)},
        {"step": (step, {})},
        inputs=lambda seed: {"x": np.ones(WIDTH, np.float32)},
        specs=lambda tree, mesh: {},
        input_specs=lambda leaves, mesh: {},
    )


@pytest.mark.parametrize(
    ("dtype", "by", "counters"), [("uint32", 1, 1), ("uint32", 2, 0), ("int16", 1, 0), ("uint8", 1, 0)]
)
def test_counters_of_two_integer_types_are_equal_only_if_they_wrap_at_one_number(dtype, by, counters):
    builds = counting("int32", 1), counting(dtype, by)
    case = Case(id="toy/step", reference=lambda: builds[0], candidate=lambda: builds[1], program="step")
    evidence = Evidence.of(case, Session())
    assert evidence.pairing is not None and evidence.pairing.alone.counters == counters
    assert evidence.proof is not None and evidence.proof.proved == bool(counters)


def drawing(advance=None):
    """A build of one program; with ``advance`` it also holds a key, which that function changes."""

    def step(state, inputs):
        key = {"key": advance(state["key"])} if advance else {}
        return {"state": {"params": state["params"], **key}, "values": {"y": inputs["x"] * state["params"]}}

    def create(key):
        return {"params": jnp.ones(WIDTH), **({"key": key} if advance else {})}

    return linen_build(
        "drawing",
        create,
        {"step": (step, {})},
        inputs=lambda seed: {"x": np.ones(WIDTH, np.float32)},
        specs=lambda tree, mesh: {},
        input_specs=lambda leaves, mesh: {},
    )


def by_loop(key):
    return jax.lax.fori_loop(0, 3, lambda i, key: jax.random.fold_in(key, i), key)


@pytest.mark.parametrize(("advance", "loops"), [(lambda key: jax.random.clone(key), False), (by_loop, True)])
def test_a_proof_does_not_cover_the_loops_of_state_that_one_side_has_alone(advance, loops):
    builds = drawing(advance), drawing()
    case = Case(id="toy/step", reference=lambda: builds[0], candidate=lambda: builds[1], program="step")
    evidence = Evidence.of(case, Session())
    assert evidence.weights.alone == (("key",), ()) and evidence.same_program
    assert evidence.proof_covers_compiled == (not loops)


class LinenGain(linen.Module):
    @linen.compact
    def __call__(self, x):
        return x * self.param("gain", linen.initializers.ones_init(), (1, WIDTH))


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x):
        return x + linen.Dense(WIDTH, name="out")(jnp.tanh(linen.Dense(WIDTH, name="into")(x)))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = LinenBlock(name="first")(x)
        x = LinenBlock(name="second")(x)  # the omitted block
        x = LinenGain(name="last")(x)  # the omitted gain
        return jnp.sin(x)


class NnxGain(nnx.Module):
    def __init__(self):
        self.gain = nnx.Param(jnp.ones((1, WIDTH)))

    def __call__(self, x):
        return x * self.gain[...]


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.into = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.out(jnp.tanh(self.into(x)))


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second, self.last = NnxBlock(rngs), NnxBlock(rngs), NnxGain()

    def __call__(self, x):
        return jnp.sin(self.first(x))


def test_an_omitted_module_is_one_difference_with_the_call_that_the_other_side_has():
    def inputs(seed):
        return {"x": np.random.default_rng(seed).normal(size=(2, WIDTH)).astype("float32")}

    pair = parity.twins("net", linen=LinenNet(), nnx=NnxNet, inputs=inputs, loss=lambda out, batch: out.sum())
    (case,) = (case for case in pair.cases({}) if case.program == "forward")
    proof = Evidence.of(case, Session()).proof
    assert proof is not None
    gain, block = (one.sentence() for one in proof.frontier)
    assert block.startswith("state params/second with 4 leaves (only the reference reads it): ")
    assert "LinenBlock.__call__" in block and line_of("# the omitted block") in block
    assert "in LinenGain.__call__, called at " in gain and line_of("# the omitted gain") in gain


def line_of(text):
    """Returns the place of a line of `LinenNet`, as text."""
    lines, first = inspect.getsourcelines(LinenNet)
    at = next(at for at, line in enumerate(lines, first) if text in line)
    return f"test_pairing.py:{at} in LinenNet.__call__"
