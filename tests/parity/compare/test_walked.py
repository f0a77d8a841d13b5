"""Different structure, the same operations: a scan against layers, mapped weights, different shardings."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.builds.meshes import MeshSpec
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Permute, Stack
from parity.cases.case import Accept, Case
from parity.compare import exactness as walking
from parity.compare.backends.registry import Devices
from parity.compare.evidence import Evidence
from parity.compare.modulo import NOTHING, prove_modulo_sharding
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Doubt, Verdict

# B batch, D width, L layers
B, D, L = 5, 4, 3


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def layer(x, w):
    return x + jnp.tanh(x @ w)


def written(params, x):
    for at in range(L):
        x = layer(x, params[f"layer_{at}"])
    return x


def scanned(params, x, **options):
    return jax.lax.scan(lambda x, w: (layer(x, w), None), x, params["layers"], **options)[0]


def gradient(apply, state, inputs):
    loss, gradients = jax.value_and_grad(lambda params: jnp.sum(apply(params, inputs["x"]) ** 2))(
        state["params"]
    )
    return {
        "values": {"loss": loss},
        "gradients": {f"params/{name}": leaf for name, leaf in gradients.items()},
    }


def layers(key):
    return {
        "params": {f"layer_{at}": jax.random.normal(jax.random.fold_in(key, at), (D, D)) for at in range(L)}
    }


def stacked(key):
    return {"params": {"layers": jnp.stack(list(layers(key)["params"].values()))}}


def replicated(leaf: Any) -> jax.sharding.PartitionSpec:
    return jax.sharding.PartitionSpec()


def build(name, state, apply, specs=replicated, program=gradient):
    return linen_build(
        name,
        state,
        {"step": (functools.partial(program, apply), {})},
        inputs=batch,
        specs=lambda tree, mesh: jax.tree.map(specs, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, jax.sharding.PartitionSpec()),
    )


STACKED = Rule(
    reference=tuple(f"layer_{at}" for at in range(L)),
    candidate=("layers",),
    transform=Stack(axis=0, number=L),
)


def case(reference, candidate, *rules, **rest):
    return Case(
        id="toy/step@single",
        reference=lambda: reference,
        candidate=lambda: candidate,
        program="step",
        rules=rules,
        **rest,
    )


def scan_case(apply=scanned, **rest):
    return case(build("left", layers, written), build("right", stacked, apply), STACKED, **rest)


@pytest.mark.long
def test_a_scan_equals_its_layers_except_for_rounding_and_settles_nothing():
    work = Evidence.of(scan_case(), Session())
    proof = work.proof
    assert proof is not None and (proof.rung, proof.proved, proof.same_program) == (
        Verdict.REORDERED,
        False,
        False,
    )
    assert proof.rules["unroll"] == 2 * L and proof.rules["moved-weights"] == 1
    assert "added-zeros" not in proof.rules
    assert not work.proof_covers_values and not work.proof_covers_compiled
    channels = run_case(scan_case(), Session()).channels
    assert channels["program"].verdict == "reordered"
    assert "(rules: elements, unroll, moved-weights)" in channels["program"].detail
    assert channels["values"].verdict in ("bitwise", "floor"), "values are run"
    assert channels["memory"].verdict != "proved"


@pytest.mark.long
def test_a_case_that_no_backend_runs_is_reported_under_its_name(monkeypatch):
    monkeypatch.setattr(Devices, "executes", False)
    channels = run_case(scan_case(), Session()).channels
    assert {channels[name].verdict for name in ("values", "gradients")} == {"reordered"}
    wrong = run_case(scan_case(functools.partial(scanned, reverse=True)), Session()).channels
    assert {wrong[name].verdict for name in ("values", "gradients")} == {"open"}


@pytest.mark.long
def test_layers_backwards_are_reported_with_the_first_difference():
    channels = run_case(scan_case(functools.partial(scanned, reverse=True)), Session()).channels
    assert channels["program"].verdict == "unproved"
    assert channels["program"].findings[0].doubts == (Doubt.NUMBERS, Doubt.PLACE)
    assert "layouts differ, and unrolled programs do, too" in channels["program"].detail
    text = channels["program"].findings[0].sentence()
    assert text.startswith("not sure, ") and ".py:" in text and not channels["program"].notes
    assert channels["values"].verdict == "failed"


@pytest.mark.parametrize("right", [True, False])
def test_a_map_that_transposes(right):
    def second(params, x):
        for at in range(L):
            w = params[f"layer_{at}"]
            x = layer(x, w.T if right else w)
        return x

    rule = Rule(reference=(r"layer_(\d)",), candidate=(r"layer_\1",), transform=Permute((1, 0)))
    work = Evidence.of(case(build("left", layers, written), build("right", layers, second), rule), Session())
    assert (work.proof is not None) is right
    if work.proof is None:
        assert (
            work.unrolled_proof is not None
            and not work.unrolled_proof.reordered
            and work.unrolled_proof.frontier
        )
    else:
        assert work.proof.rung is Verdict.REORDERED and "turned-weights" in work.proof.rules


def forward(apply, state, inputs):
    return {"values": {"out": apply(state["params"], inputs["x"])}}


@pytest.mark.parametrize("program", [forward, gradient])
def test_a_stack_that_is_read_layer_by_layer_is_proved_by_a_rule(program):
    def second(params, x, order=range(L)):
        for at in order:
            x = layer(x, params["layers"][at])
        return x

    def compared(apply):
        sides = (
            build("left", layers, written, program=program),
            build("right", stacked, apply, program=program),
        )
        return Evidence.of(case(*sides, STACKED), Session())

    work = compared(second)
    assert work.proof is not None and not work.same_program
    if program is forward:
        assert work.proof.proved and "moved-weights" in work.proof.rules and work.proof_covers_values
    else:  # its gradient is a sum of padded pieces
        assert work.proof.rung is Verdict.REORDERED and work.proof.rules["added-zeros"]
    assert compared(functools.partial(second, order=[0, 2, 1])).proof is None


def test_loops_against_layers_under_one_map():
    """Both sides hold single layers; one of them stacks them and scans."""

    def own(params, x):
        return scanned({"layers": jnp.stack([params[f"layer_{at}"] for at in range(L)])}, x)

    work = Evidence.of(case(build("left", layers, written), build("right", layers, own)), Session())
    assert work.proof is not None and work.proof.rung is Verdict.REORDERED
    assert set(work.proof.rules) >= {"elements", "unroll"} and "moved-weights" not in work.proof.rules
    wrong = case(build("left", layers, written), build("right", layers, functools.partial(_turned, own)))
    proof = Evidence.of(wrong, Session()).proof
    assert proof is not None and proof.rung is Verdict.UNPROVED and proof.frontier


@pytest.mark.long
def test_a_case_that_demands_a_proof_names_the_operation_that_a_walk_sees_through():
    """One side writes its layers out, each behind a barrier: compilers see it, numbers do not change."""

    def own(params, x, layer=layer, unroll=1):
        stack = jnp.stack([params[f"layer_{at}"] for at in range(L)])
        return jax.lax.scan(lambda x, w: (layer(x, w), None), x, stack, unroll=unroll)[0]

    def barred(x, w):
        return layer(jax.lax.optimization_barrier(x), w)

    right = build("right", layers, functools.partial(own, layer=barred, unroll=L))
    demanded = case(build("left", layers, own), right, accept=Accept(require=Verdict.PROVED))
    channels = run_case(demanded, Session()).channels
    assert channels["program"].verdict == "failed" and "unroll" in channels["program"].detail
    assert any("optimization_barrier" in finding.sentence() for finding in channels["program"].findings)
    channels = run_case(case(build("left", layers, own), right), Session()).channels
    assert channels["program"].verdict == "reordered" and not channels["program"].findings


def _turned(apply, params, x):
    return apply({f"layer_{at}": params[f"layer_{(at + 1) % L}"] for at in range(L)}, x)


def test_a_program_with_the_same_loops_is_not_walked():
    def other(params, x):
        return written(params, jax.lax.pow(x, jnp.float32(1.0)))

    work = Evidence.of(case(build("left", layers, written), build("right", layers, other)), Session())
    assert work.unrolled_proof is None and work.proof is not None and work.proof.rung is Verdict.UNPROVED


def on_two(leaf: Any) -> jax.sharding.PartitionSpec:
    return jax.sharding.PartitionSpec("fsdp")


MESHES = {"mesh": MeshSpec.parse("fsdp2-auto"), "candidate_mesh": MeshSpec.parse("fsdp2-auto")}


def test_ignoring_shardings_lists_differences_and_claims_no_bits():
    sides = build("left", layers, written), build("right", layers, written, on_two)
    found = prove_modulo_sharding(Evidence.of(case(*sides, **MESHES), Session()))
    assert found.verdict == "same up to sharding"
    places = {row.place: (row.reference, row.candidate) for row in found.differing}
    assert places["argument params/layer_0"] == ("@mesh, [{}, {}]", '@mesh, [{"fsdp"}, {}]')
    strict = Evidence.of(case(*sides, **MESHES), Session()).proof
    assert strict is not None and not strict.proved


def test_modulo_sharding_one_device_against_a_mesh():
    sides = build("left", layers, written), build("right", layers, written, on_two)
    meshes = {"mesh": MeshSpec.parse("single"), "candidate_mesh": MeshSpec.parse("fsdp2-auto")}
    found = prove_modulo_sharding(Evidence.of(case(*sides, **meshes), Session()))
    assert found.verdict == "same up to sharding"
    assert {row.place: row.reference for row in found.differing}["mesh"] == NOTHING


def test_ignoring_shardings_leaves_out_nothing_else():
    other = functools.partial(_turned, written)
    sides = build("left", layers, written), build("right", layers, other, on_two)
    found = prove_modulo_sharding(Evidence.of(case(*sides, **MESHES), Session()))
    assert found.verdict == "differs" and found.proof.frontier


def test_modulo_sharding_of_a_scan_against_layers():
    sides = build("left", layers, written), build("right", stacked, scanned)
    found = prove_modulo_sharding(Evidence.of(case(*sides, STACKED), Session()))
    assert found.verdict == "same values up to sharding" and found.differing == ()


@pytest.mark.long
def test_a_walk_that_breaks_ends_no_run(monkeypatch):
    def broken(*arguments, **options):
        raise KeyError("a bug of the walker")

    monkeypatch.setattr(walking, "equal", broken)
    channels = run_case(scan_case(), Session()).channels
    assert channels["program"].verdict == "unproved"
    assert "a bug of the walker" in channels["program"].findings[0].sentence()
    assert channels["values"].verdict in ("bitwise", "floor")


def test_a_walk_that_is_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(walking, "MOST_STEPS", 20)
    work = Evidence.of(scan_case(), Session())
    assert work.proof is None and work.unrolled_proof is not None
    assert "got over 20 operations" in work.unrolled_proof.frontier[0].sentence()
