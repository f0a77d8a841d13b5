"""Unproved programs that compile to one program: equal bits for all inputs, and nothing runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case
from parity.compare import one_program
from parity.compare.backends.aot import missing_compiler
from parity.compare.backends.registry import Devices, find
from parity.compare.evidence import Evidence
from parity.compare.placement import place
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 8, 4, 6
TABLE = np.linspace(-1.0, 2.0, F, dtype=np.float32) ** 3
"""A constant with too many numbers for `as_text` to print."""


def unturned(x):
    """The compiler removes the two signs, but no rule of a proof does."""
    return jnp.negative(jnp.negative(x))


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def plain(params, inputs):
    return jnp.tanh(inputs["x"] @ params["w"]) * TABLE[None]


def twice(params, inputs):
    return unturned(jnp.tanh(inputs["x"] @ params["w"])) * TABLE[None]


def near(params, inputs):
    """One number of the table differs: the same text except for the part that `as_text` omits."""
    other = TABLE.copy()
    other[3] = np.nextafter(other[3], np.float32(9))
    return unturned(jnp.tanh(inputs["x"] @ params["w"])) * other[None]


def forward(apply, state, inputs):
    out = apply(state["params"], inputs)
    slope = jax.grad(lambda params: jnp.sum(jnp.sin(apply(params, inputs))))(state["params"])
    return {"values": {"out": out}, "gradients": {"params/w": slope["w"]}}


def state(key):
    return {"params": {"w": jax.random.normal(key, (D, F))}}


def build(name, apply, spec=None):
    spec = spec or jax.sharding.PartitionSpec()
    return linen_build(
        name,
        state,
        {"step": (functools.partial(forward, apply), {})},
        inputs=batch,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: jax.sharding.PartitionSpec(), tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, spec),
    )


def case(reference, candidate, **rest):
    return Case(
        id="toy/step@single", reference=lambda: reference, candidate=lambda: candidate, program="step", **rest
    )


def outcome(reference, candidate, **rest):
    return run_case(case(build("left", reference), build("right", candidate), **rest), Session())


def runs(monkeypatch):
    """Returns a list that grows at each run of a side."""
    from parity.compare.side import Side

    seen, run = [], Side.run
    monkeypatch.setattr(
        Side, "run", lambda self, *given, **rest: seen.append(self) or run(self, *given, **rest)
    )
    return seen


def test_sides_that_compile_to_one_program_are_bitwise_and_do_not_run(monkeypatch):
    seen = runs(monkeypatch)
    result = outcome(plain, twice)
    assert result.channels["program"].verdict == "unproved", "else there is nothing to show"
    for name in ("values", "gradients"):
        assert result.channels[name].verdict == "bitwise"
        assert result.channels[name].detail == "equal for all inputs: both compile to one program on cpu"
    assert not seen
    assert result.channels["memory"].verdict == "equal", "structure is looked at"


def test_programs_of_another_length_are_not_parsed(monkeypatch):
    parsed, digest = [], one_program.compiled_digest
    monkeypatch.setattr(one_program, "compiled_digest", lambda made: parsed.append(made) or digest(made))
    work = Evidence.of(
        case(build("left", plain), build("right", lambda *given: jnp.sort(plain(*given)))), Session()
    )
    assert not one_program.compile_to_one(work) and not parsed
    work = Evidence.of(case(build("left", plain), build("right", twice)), Session())
    assert one_program.compile_to_one(work) and len(parsed) == 2


def test_a_constant_that_differs_in_its_last_bit_is_another_program(monkeypatch):
    seen = runs(monkeypatch)
    result = outcome(plain, near, accept=Accept(require=Verdict.BITWISE))
    assert result.channels["values"].verdict == "failed" and seen
    assert "out" in result.channels["values"].findings[0].where


@pytest.mark.parametrize("rest", [{"paranoid": True}, {"require": Verdict.PROVED}])
def test_it_is_not_tried_if_runs_or_a_proof_are_required(monkeypatch, rest):
    seen = runs(monkeypatch)
    result = outcome(plain, twice, accept=Accept(**rest))
    assert "compile to one" not in result.channels["values"].detail
    assert bool(seen)
    assert (result.channels["program"].verdict == "failed") == ("require" in rest)


def test_a_switched_pair_of_arguments_is_another_program():
    """Both compile to one text, but they read their first two arguments in exchanged order."""

    def sum_of(first, second, params, inputs):
        return (inputs["x"] @ params[first]) - jnp.abs(unturned(inputs["x"] @ params[second]))

    def two(key):
        return {
            "params": {"a": jax.random.normal(key, (D, F)), "b": jax.random.normal(jax.random.key(7), (D, F))}
        }

    def made(name, first, second):
        def step(state, inputs):
            return {"values": {"out": sum_of(first, second, state["params"], inputs)}}

        return linen_build(
            name,
            two,
            {"step": (step, {})},
            inputs=batch,
            specs=lambda tree, mesh: jax.tree.map(lambda leaf: jax.sharding.PartitionSpec(), tree),
            input_specs=lambda leaves, mesh: dict.fromkeys(leaves, jax.sharding.PartitionSpec()),
        )

    result = run_case(case(made("left", "a", "b"), made("right", "b", "a")), Session())
    assert "compile to one" not in result.channels["values"].detail
    assert result.channels["values"].verdict == "failed"


def test_inputs_with_another_placement_make_another_case_of_the_same_text():
    """Each device does the same with its part, but the parts differ: rows here, columns there."""
    spec = jax.sharding.PartitionSpec
    mesh = MeshSpec.parse("data2.tensor2-auto")

    def entrywise(params, inputs):
        return jnp.abs(inputs["x"]) * 1.0

    def negated(params, inputs):
        return unturned(jnp.abs(inputs["x"])) * 1.0

    def made(name, apply, placements):
        return build(name, lambda params, inputs: apply(params, inputs) + jnp.sum(params["w"]), placements)

    for placements, one in ((spec("data", "tensor"), True), (spec("tensor", "data"), False)):
        sides = made("left", entrywise, spec("data", "tensor")), made("right", negated, placements)
        result = run_case(case(*sides, mesh=mesh), Session())
        assert ("compile to one" in result.channels["values"].detail) == one, result.channels["values"]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_compiler()), reason="libtpu is not installed")
def test_it_decides_values_on_backends_that_run_nothing():
    sides = build("left", plain), build("right", twice)
    (placed,) = place([case(*sides)], find("aot:v5e:2x2"))
    result = run_case(placed, Session())
    assert result.channels["values"].verdict == "bitwise"
    assert result.channels["values"].detail.startswith(
        "equal for all inputs: both compile to one program on aot:v5e:2x2"
    )


def test_devices_without_execution_have_it_too(monkeypatch):
    monkeypatch.setattr(Devices, "executes", False)
    assert outcome(plain, twice).channels["values"].verdict == "bitwise"
