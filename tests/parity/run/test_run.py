"""Runs of a case: the channels that give a verdict, the effect of a crash, and checks that could not fail."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from expected import surprises

from parity.builds.build import Build, linen_build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case
from parity.channels import ALL, CHANNELS, Aspect, SettledByProof, of_aspect
from parity.compare.clock import PHASES
from parity.compare.session import Session
from parity.run.request import Request
from parity.run.run import case_runner, run_case
from parity.verdicts import Requirement, Verdict

# B batch, D in, F out
B, D, F = 5, 4, 3
REPLICATED = jax.sharding.PartitionSpec()


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def one_row(seed):
    """A batch of one repeated number: any function along the rows goes undetected."""
    return {"x": np.full((B, D), 0.5, np.float32)}


def model(params, inputs):
    return jnp.tanh(inputs["x"] @ params["w"]) + params["b"][None]


def unproved(params, inputs):
    """Gives equal bits by a different program, also when compiled."""
    return model({**params, "w": jnp.maximum(params["w"], params["w"] - 1)}, inputs)


def forward(state, inputs, apply=model):
    return {"values": {"out": apply(state["params"], inputs)}}


def scaled(factor):
    return functools.partial(forward, apply=lambda params, inputs: factor * model(params, inputs))


def step(state, inputs, apply=model, rate=0.1):
    def loss(params):
        return jnp.sum(apply(params, inputs) ** 2)

    value, grads = jax.value_and_grad(loss)(state["params"])
    after = {name: leaf - rate * grads[name] for name, leaf in state["params"].items()}
    return {"values": {"loss": value}, "gradients": {"params": grads}, "state": {"params": after}}


def state(key, leaf="w"):
    return {"params": {leaf: jax.random.normal(key, (D, F)), "b": jnp.zeros(F)}}


def build(name, function, *, inputs=batch, create=state, **options):
    return linen_build(
        name,
        create,
        {"step": (function, options)},
        inputs=inputs,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def case(reference, candidate, id="toy/step@single", **rest):
    """A case of two functions, or of two builds."""
    sides = [
        side if isinstance(side, Build) else build(f"linen {name} {id}", side)
        for name, side in (("left", reference), ("right", candidate))
    ]
    return Case(id=id, reference=lambda: sides[0], candidate=lambda: sides[1], program="step", **rest)


def outcome(reference, candidate, paranoid=False, **rest):
    return run_case(case(reference, candidate, **rest), Session(paranoid=paranoid))


def verdicts(result):
    return {name: str(channel.verdict) for name, channel in result.channels.items()}


def sentences(result, channel):
    return "\n".join(finding.sentence() for finding in result.channels[channel].findings)


def raises(state, inputs):
    raise RuntimeError("out of luck\nsecond line")


# --- channels and rungs ---


PROVED = {
    **dict.fromkeys(("program", "values", "gradients", "state"), "proved"),
    "retrace": "equal",
    **dict.fromkeys(("exact", "routing", "collectives", "speed", "flags", "checkpoint"), "skipped"),
}
"""The verdicts on a proved step that differ from those in the registry."""


def test_every_channel_reports_in_order_and_a_proof_runs_nothing(monkeypatch):
    monkeypatch.setattr("parity.compare.sample.MOST_OPERATIONS", 0)
    result = outcome(step, step)
    assert tuple(result.channels) == ALL and surprises(verdicts(result), **PROVED) == {}
    assert (result.verdict, result.sentence(), result.blocking) == ("passed", "", [])
    assert set(result.seconds) == {*PHASES, "other"}
    assert result.seconds["compile"] == 0.0 == result.seconds["execute"] < result.seconds["trace"]
    assert min(result.seconds.values()) >= 0


@pytest.mark.slow
def test_paranoid_runs_proved_cases():
    result = outcome(step, step, paranoid=True)
    ran = dict.fromkeys(("values", "gradients", "state"), "bitwise")
    settled = (
        name
        for name in of_aspect(Aspect.STRUCTURE)
        if CHANNELS[name].settled_by_proof is not SettledByProof.NEVER
    )
    stated = {**dict.fromkeys(settled, "equal"), **PROVED, **ran}
    assert surprises(verdicts(result), **stated) == {}
    assert min(result.seconds["compile"], result.seconds["execute"]) > 0


def test_groups_that_no_side_returns_are_skipped_with_the_reason():
    result = outcome(forward, forward)
    assert result.verdict == "passed"
    for name in ("gradients", "state"):
        assert (result.channels[name].verdict, result.channels[name].detail) == (
            "skipped",
            "step returns none",
        )


def test_without_a_proof_the_bits_decide():
    result = outcome(forward, functools.partial(forward, apply=unproved))
    assert (result.verdict, result.channels["program"].verdict) == ("passed", "unproved")
    assert result.channels["values"].verdict == "bitwise"
    assert "maximum" in sentences(result, "program") or "subtract" in sentences(result, "program")


@pytest.mark.slow
def test_a_requirement_for_all_cases_holds_if_a_proof_can_be_tried():
    """`parity run --require proved` fails equal bits of different programs; sides that must differ keep their rung."""
    other = case(forward, functools.partial(forward, apply=unproved))
    by_intent = other.with_accept(not_applicable={"program": "other programs by intent"})

    def verdict(one, require):
        result = case_runner(Request(required=Requirement((require,))))(one)
        return result.verdict

    assert verdict(case(forward, forward), Verdict.PROVED) == "passed"
    assert verdict(other, Verdict.PROVED) == "failed"
    assert verdict(other, Verdict.BITWISE) == "passed"
    assert verdict(by_intent, Verdict.PROVED) == "passed"


@pytest.mark.parametrize(("require", "verdict"), [(Verdict.FLOOR, "floor"), (Verdict.BITWISE, "failed")])
def test_a_unit_in_the_last_place_is_within_the_floor_if_the_case_lets_it(require, verdict):
    result = outcome(forward, scaled(1 + 2**-23), accept=Accept(require=require))
    assert result.channels["values"].verdict == verdict
    assert result.channels["values"].findings[0].where.startswith("out[")


def test_another_learning_rate_fails_the_program_and_the_state_and_nothing_between_them():
    result = outcome(step, lambda state, inputs: step(state, inputs, rate=0.11))
    assert (result.verdict, [channel.name for channel in result.blocking]) == ("failed", ["program", "state"])
    assert "params/w" in sentences(result, "state")
    assert result.sentence().startswith("toy/step@single: program failed: multiply")
    assert result.channels["values"].verdict == result.channels["gradients"].verdict == "bitwise"


def test_channels_that_do_not_apply_give_the_case_s_reason():
    result = run_case(
        case(forward, forward, accept=Accept(not_applicable={"loops": "one side scans"})), Session()
    )
    assert (result.channels["loops"].verdict, result.channels["loops"].detail) == (
        "skipped",
        "one side scans",
    )
    every = run_case(
        case(forward, forward, accept=Accept(not_applicable=dict.fromkeys(ALL, "no"))), Session()
    )
    assert every.verdict == "skipped"


# --- results that only one side returns ---


@pytest.mark.slow
@pytest.mark.parametrize("group", ["values", "gradients", "state"])
@pytest.mark.parametrize("swapped", [False, True], ids=["candidate", "reference"])
def test_a_group_that_only_one_side_returns_fails(group, swapped):
    def without(state, inputs):
        return {name: leaves for name, leaves in step(state, inputs).items() if name != group}

    sides = (without, step) if swapped else (step, without)
    result = outcome(*sides)
    assert result.verdict == "failed", verdicts(result)
    assert result.channels[group].verdict == "failed"
    assert "an output that only one side returns" in sentences(result, group)


def test_a_leaf_that_only_one_side_returns_fails():
    def more(state, inputs):
        out = forward(state, inputs)
        return {"values": {**out["values"], "extra": out["values"]["out"].sum()}}

    result = outcome(forward, more)
    assert result.channels["values"].verdict == "failed"
    assert "extra: reference not returned, candidate returned" in sentences(result, "values")


def test_leftover_leaves_fail_the_tree_and_the_rest_is_skipped():
    def other(key):
        return {"params": {"b": jnp.zeros(F), "scale": jnp.ones(D)}}

    result = outcome(forward, build("linen right", lambda state, inputs: {"values": {}}, create=other))
    assert result.verdict == "failed"
    assert "params/w: reference float32[4, 3], candidate no such leaf" in sentences(result, "tree")
    assert "params/scale: reference no such leaf, candidate float32[4]" in sentences(result, "tree")
    rest = {"rng", "sharding"} | {name for name, one in CHANNELS.items() if one.aspect is not Aspect.STATE}
    assert {str(result.channels[name].verdict) for name in rest} == {"skipped"}
    assert result.channels["values"].detail == "no weight map"


# --- checks that cannot fail ---


def empty(state, inputs):
    return {"values": {}}


@pytest.mark.parametrize("paranoid", [False, True])
def test_a_program_without_values_is_vacuous(paranoid):
    """History P3: the compared set is empty, so the comparison cannot fail."""
    result = outcome(empty, empty, paranoid=paranoid)
    assert result.verdict == "vacuous", verdicts(result)
    assert "no leaf" in sentences(result, "values")


@pytest.mark.parametrize("paranoid", [False, True])
def test_a_program_that_returns_nothing_at_all_is_vacuous(paranoid):
    def nothing(state, inputs):
        return {}

    assert outcome(nothing, nothing, paranoid=paranoid).verdict == "vacuous"


def test_one_side_without_values_fails():
    result = outcome(forward, empty)
    assert (result.verdict, result.channels["values"].verdict) == ("failed", "failed")


@pytest.mark.slow
def test_a_constant_batch_is_vacuous_if_values_decide():
    """History P2; a proof holds for all inputs and needs no batch."""
    sides = [
        build(f"linen {name}", function, inputs=one_row)
        for name, function in (
            ("left", forward),
            ("right", functools.partial(forward, apply=unproved)),
        )
    ]
    result = outcome(*sides)
    assert (result.verdict, result.channels["values"].verdict) == ("vacuous", "vacuous")
    assert "batch x: expected entries that differ, got all 20 entries are 0.5" in sentences(result, "values")
    assert "let it vary for each seed" in sentences(result, "values")
    assert outcome(sides[0], sides[0]).verdict == "passed"
    assert outcome(sides[0], sides[0], paranoid=True).verdict == "vacuous"


def test_numbers_that_are_not_finite_on_both_sides_are_vacuous():
    def broken(apply):
        return lambda state, inputs: {
            "values": {"loss": jnp.log(-jnp.sum(apply(state["params"], inputs) ** 2))}
        }

    result = outcome(broken(model), broken(unproved))
    assert result.verdict == "vacuous"
    assert "loss: expected finite numbers, got entries that are not finite" in sentences(result, "values")


def test_a_loss_that_is_not_finite_on_one_side_fails():
    def broken(state, inputs):
        return {"values": {"loss": jnp.log(-jnp.sum(model(state["params"], inputs) ** 2))}}

    def sound(state, inputs):
        return {"values": {"loss": jnp.log(jnp.sum(model(state["params"], inputs) ** 2))}}

    result = outcome(sound, broken)
    assert result.verdict == "failed"
    assert "loss" in sentences(result, "values") and "not finite" in sentences(result, "values")


@pytest.mark.parametrize("declared", [(), ("params/b",)])
def test_a_gradient_of_zeros_is_vacuous_unless_declared(declared):
    def without_bias(params, inputs):
        return model({**params, "b": jnp.zeros(F)}, inputs)

    def program(state, inputs):
        outputs = step(state, inputs, without_bias)
        return {name: outputs[name] for name in ("values", "gradients")}

    result = outcome(program, program, paranoid=True, accept=Accept(zero_gradients=declared))
    assert result.verdict == ("passed" if declared else "vacuous")
    assert declared or "params/b: expected a gradient that is not zero" in sentences(result, "gradients")


def test_a_step_that_moves_nothing_is_vacuous():
    def idle(state, inputs):
        return step(state, inputs, rate=0.0)

    result = outcome(idle, idle, paranoid=True)
    assert (result.verdict, result.channels["state"].verdict) == ("vacuous", "vacuous")
    assert "params/w: expected a parameter that training moves" in sentences(result, "state")


# --- crashes ---


def no_such_target(state, inputs):
    """Traces and lowers, but has no target to compile for."""
    out = jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((B, F), jnp.float32))(inputs["x"])
    return {"values": {"out": out}}


def grown(seed):
    """A batch size other than the compiled one."""
    return batch(seed) if seed == 0 else {"x": np.zeros((B + 1, D), np.float32)}


@pytest.mark.parametrize("swapped", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize(
    ("function", "phase", "words"),
    [
        (raises, "trace", "RuntimeError: out of luck"),
        (no_such_target, "compile", "no_such_target"),
        (build("linen grown", scaled(2), inputs=grown), "execute", "TypeError"),
    ],
)
def test_a_side_that_crashes_is_an_error_with_side_phase_and_message(function, phase, words, swapped):
    result = outcome(*((function, forward) if swapped else (forward, function)))
    (first,) = (channel.findings[0] for channel in result.blocking if channel.verdict is Verdict.ERROR)
    assert result.verdict == ("failed" if phase == "execute" else "error")  # there the batches differ as well
    name = "grown" if phase == "execute" else "left toy/step@single" if swapped else "right toy/step@single"
    assert first.where == f"linen {name}, {phase}"
    assert words in first.candidate and words in first.traceback
    assert phase != "trace" or f"{Path(__file__).name}:" in first.next_step
    assert result.channels["tree"].verdict == "equal"
    assert sum(channel.verdict == "error" for channel in result.channels.values()) == 1
    again = {name: c.detail for name, c in result.channels.items() if c.detail.startswith("the same error")}
    assert bool(again) == (phase != "execute") and all(
        detail.endswith(result.blocking[0].name) for detail in again.values()
    )


def test_a_build_that_cannot_be_made_is_an_error():
    def fails():
        raise TypeError("no such module")

    broken = dataclasses.replace(case(forward, forward), candidate=fails)
    result = run_case(broken, Session())
    assert (result.verdict, list(result.channels)) == ("error", ["tree"])
    assert "TypeError: no such module" in result.sentence()


def test_a_channel_that_crashes_leaves_the_others_their_verdicts(monkeypatch):
    def crash(work):
        raise IndexError("list index out of range")

    monkeypatch.setitem(CHANNELS, "loops", dataclasses.replace(CHANNELS["loops"], judge=crash))
    result = outcome(step, step)
    sound = {name: verdict for name, verdict in verdicts(result).items() if name != "loops"}
    assert set(sound.values()) <= {"proved", "equal", "skipped"}
    assert (result.verdict, result.channels["loops"].verdict) == ("error", "error")
    assert "IndexError: list index out of range" in sentences(result, "loops")


def test_a_crash_takes_no_other_case_down_and_all_are_reported():
    cases = [
        case(forward, raises, id="toy/a@single"),
        dataclasses.replace(case(forward, forward, id="toy/b@single"), mesh=MeshSpec.parse("data64")),
        case(forward, forward, id="toy/c@single"),
        case(forward, scaled(-1), id="toy/d@single"),
    ]
    results = list(map(case_runner(Request()), cases))
    assert [result.verdict for result in results] == ["error", "error", "passed", "failed"]
    assert "needs 64 devices" in results[1].sentence()


def test_a_failed_channel_outranks_an_error_and_an_error_a_vacuous_one(monkeypatch):
    def crash(work):
        raise IndexError

    monkeypatch.setitem(CHANNELS, "loops", dataclasses.replace(CHANNELS["loops"], judge=crash))
    wrong = outcome(forward, scaled(-1))
    assert wrong.verdict == "failed" and [c.name for c in wrong.blocking] == ["values", "loops"]
    assert outcome(empty, empty, paranoid=True).verdict == "error"
