"""The rung `reordered`: the same operations on the same values, float operands in a different order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case
from parity.compare.backends.registry import Devices
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 5, 4, 3
REPLICATED = jax.sharding.PartitionSpec()


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def plain(params, inputs):
    return jnp.tanh(inputs["x"] @ params["w"]) + jnp.tanh(params["b"])[None]


def unproved(params, inputs):
    out = jnp.sum(inputs["x"][:, :, None] * params["w"][None], 1)
    return jnp.tanh(out) + jnp.tanh(params["b"])[None]


def forward(apply, state, inputs):
    return {"values": {"out": apply(state["params"], inputs)}}


def state(key):
    return {"params": {"w": jax.random.normal(key, (D, F)), "b": jnp.zeros(F)}}


def build(name, function):
    return linen_build(
        name,
        state,
        {"step": (function, {})},
        inputs=batch,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def outcome(reference, candidate, **rest):
    sides = build("left", reference), build("right", candidate)
    case = Case(
        id="toy/step@single", reference=lambda: sides[0], candidate=lambda: sides[1], program="step", **rest
    )
    return run_case(case, Session())


def reordered(params, inputs):
    """Applies equal operations to equal values, but the sum takes its operands in a different order."""
    return jnp.tanh(params["b"])[None] + jnp.tanh(inputs["x"] @ params["w"])


@pytest.mark.parametrize(
    ("require", "program", "values"),
    [
        (Verdict.ARBITRATED, "reordered", "bitwise"),
        (Verdict.BITWISE, "reordered", "bitwise"),
        (Verdict.REORDERED, "reordered", "bitwise"),
        (Verdict.PROVED, "failed", "failed"),
    ],
)
def test_reordered_operands_are_a_separate_rung_and_run(require, program, values):
    result = outcome(
        functools.partial(forward, plain),
        functools.partial(forward, reordered),
        accept=Accept(require=require),
    )
    assert (result.channels["program"].verdict, result.channels["values"].verdict) == (program, values)
    assert "up to the order of operands" in result.channels["program"].detail
    assert "add (the same operands in another order)" in result.channels["program"].findings[0].sentence()
    assert result.channels["memory"].verdict == "equal", "what is not proved is compiled"


def products(first):
    """The sum of two products, whose rounding depends on the order on a processor with contraction."""

    def apply(params, inputs):
        left, right = inputs["x"] * params["w"][None, :, 0], jnp.tanh(inputs["x"]) * params["w"][None, :, 1]
        return left + right if first else right + left

    return functools.partial(forward, apply)


@pytest.mark.long
def test_a_demand_for_reordered_is_one_for_equal_bits_with_contraction_and_without(compiled_as_users_do):
    plainly = outcome(
        functools.partial(forward, plain),
        functools.partial(forward, reordered),
        accept=Accept(require=Verdict.REORDERED),
    )
    assert plainly.verdict == "passed"
    assert "with and without contraction" in plainly.channels["values"].detail
    rounded = outcome(products(True), products(False), accept=Accept(require=Verdict.REORDERED))
    assert rounded.channels["program"].verdict == "reordered"
    assert rounded.channels["values"].verdict == "failed"
    assert "not with it" in rounded.channels["values"].detail
    assert outcome(products(True), products(False)).verdict == "passed", "where nobody demands bits"


def test_reordered_operands_decide_values_on_backends_that_run_nothing(monkeypatch):
    monkeypatch.setattr(Devices, "executes", False)
    for apply, verdict in ((reordered, "reordered"), (unproved, "open")):
        result = outcome(functools.partial(forward, plain), functools.partial(forward, apply))
        assert result.channels["values"].verdict == verdict


@pytest.mark.parametrize(("require", "verdict"), [("floor", "reordered"), ("bitwise", "open")])
def test_reordered_operands_do_not_decide_bits_on_backends_that_run_nothing(monkeypatch, require, verdict):
    monkeypatch.setattr(Devices, "executes", False)
    result = outcome(
        functools.partial(forward, plain),
        functools.partial(forward, reordered),
        accept=Accept(require=require),
    )
    values = result.channels["values"]
    assert values.verdict == verdict
    assert ("only reordered where bitwise is required" in values.detail) == (verdict == "open")


@pytest.mark.parametrize(
    ("require", "apply", "failed"),
    [
        ("proved", reordered, True),
        ("reordered", unproved, True),
        (("reordered", "bitwise"), reordered, False),
        (("proved", "floor"), unproved, False),
        ("exact", reordered, False),
    ],
)
def test_a_program_that_misses_the_requirement_names_it(require, apply, failed):
    result = outcome(
        functools.partial(forward, plain), functools.partial(forward, apply), accept=Accept(require=require)
    )
    program, values = result.channels["program"], result.channels["values"]
    assert [one.verdict == "failed" for one in (program, values)] == [failed, failed]
    assert (f"where {require} is required" in program.detail) == failed


@pytest.mark.long
def test_programs_on_two_meshes_are_not_compared_and_never_the_same():
    sides = (functools.partial(forward, plain),) * 2
    result = outcome(*sides, candidate_mesh=MeshSpec.parse("fsdp2-auto"))
    program = result.channels["program"]
    assert (result.verdict, program.verdict) == ("passed", "skipped")
    assert "programs not compared: layouts or meshes differ" in program.detail


def test_another_program_fails_if_the_same_operations_are_required():
    result = outcome(
        functools.partial(forward, plain),
        functools.partial(forward, unproved),
        accept=Accept(require=Verdict.REORDERED),
    )
    assert result.channels["program"].verdict == "failed"
