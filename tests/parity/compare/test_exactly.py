"""The rung `exact`: a case that relies on it is decided without a compile, or by numbers if it is not shown."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.cases.case import Accept, Case
from parity.compare import sample
from parity.compare.evidence import Evidence
from parity.compare.exactness import equal_exactly
from parity.compare.session import Session
from parity.compare.side import Side
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 4, 3, 5
REPLICATED = jax.sharding.PartitionSpec()


def whole(w_DF, x_BD):
    return jnp.sum(jnp.tanh(x_BD @ w_DF))


def row_by_row(w_DF, x_BD):
    return jax.lax.scan(lambda total, x_D: (total + whole(w_DF, x_D[None]), None), 0.0, x_BD)[0]


def without_the_last_row(w_DF, x_BD):
    return row_by_row(w_DF, x_BD[:-1])


def sorted_rows(w_DF, x_BD):
    return whole(w_DF, jnp.sort(x_BD, axis=0)) * 0.0 + row_by_row(w_DF, x_BD)


def build(name, loss):
    def grad(state, inputs):
        value, slope = jax.value_and_grad(loss)(state["params"]["w"], inputs["x"])
        return {"values": {"loss": value}, "gradients": {"params": {"w": slope}}}

    return linen_build(
        name,
        lambda key: {"params": {"w": jax.random.normal(key, (D, F))}},
        {"grad": (grad, {})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def comparison(candidate, paranoid=False, require=(Verdict.EXACT, Verdict.ARBITRATED)):
    builds = build("left", whole), build("right", candidate)
    case = Case(
        id="toy/grad@single",
        reference=lambda: builds[0],
        candidate=lambda: builds[1],
        program="grad",
        accept=Accept(require=require, not_applicable={"program": "other programs by intent"}),
    )
    return case, Session(paranoid=paranoid)


def rungs(candidate, **options):
    result = run_case(*comparison(candidate, **options), channels=("values", "gradients"))
    return result.verdict, {str(one.verdict) for one in result.channels.values()}


def test_sides_equal_in_exact_arithmetic_are_not_run(monkeypatch):
    monkeypatch.setattr(sample, "MOST_OPERATIONS", 0)
    case, bench = comparison(row_by_row)
    result = run_case(case, bench, ("values", "gradients"))
    assert {one.verdict for one in result.channels.values()} == {Verdict.EXACT} and result.verdict == "passed"
    assert "rounding aside" in result.channels["values"].detail
    work = Evidence.of(case, bench)
    assert work.proof is None and Evidence.operation_proof not in work.memo, "rules were tried needlessly"
    assert not any(Side.compiled in side.memo for side in (work.reference, work.candidate))
    assert result.seconds["compile"] == 0


@pytest.mark.parametrize(
    "options",
    [{"paranoid": True}, {"paranoid": True, "require": Verdict.EXACT}, {"require": Verdict.ARBITRATED}],
)
def test_it_is_run_on_request_or_if_the_case_does_not_accept_it(options):
    verdict, found = rungs(row_by_row, **options)
    assert verdict == "passed" and found <= {"bitwise", "floor"}


def test_a_difference_fails_by_its_numbers():
    verdict, found = rungs(without_the_last_row)
    assert verdict == "failed" and found == {"failed"}


@pytest.mark.slow
def test_a_refused_proof_leads_to_a_run():
    case, bench = comparison(sorted_rows)
    assert "sort" in Evidence.of(case, bench).accepted_exact_proof.refusal
    verdict, found = rungs(sorted_rows)
    assert verdict == "passed" and found <= {"bitwise", "floor"}


@pytest.mark.parametrize(("require", "verdict"), [("exact", "failed"), (("exact", "floor"), "passed")])
def test_numbers_replace_exact_arithmetic_only_if_the_case_names_their_rung_too(require, verdict):
    """`exact` and `floor`: neither includes the other, so a requirement of one is not satisfied by the other."""
    result = run_case(*comparison(sorted_rows, require=require), channels=("values",))
    detail = result.channels["values"].detail
    assert result.verdict == verdict
    assert ("where exact is required; not shown in exact arithmetic: " in detail) == (verdict == "failed")
    assert ("sort" in detail) == (verdict == "failed")


@pytest.mark.parametrize("require", ["bitwise", "floor", "arbitrated"])
def test_a_proof_in_exact_arithmetic_does_not_cover_rounding(require):
    case, bench = comparison(row_by_row, require=require)
    work = Evidence.of(case, bench)
    assert work.exact_proof.proved and work.accepted_exact_proof is None
    assert run_case(case, bench, ("values",)).channels["values"].verdict != "exact"


def test_gradients_of_zeros_are_vacuous_all_the_same():
    """A proof does not turn a vacuous check into a meaningful one."""
    still = functools.partial(lambda loss, w_DF, x_BD: loss(jax.lax.stop_gradient(w_DF), x_BD), row_by_row)
    builds = build("left", lambda w, x: whole(jax.lax.stop_gradient(w), x)), build("right", still)
    case = Case(
        id="toy/grad@single",
        reference=lambda: builds[0],
        candidate=lambda: builds[1],
        program="grad",
        accept=Accept(require=Verdict.EXACT, not_applicable={"program": "other programs by intent"}),
    )
    assert run_case(case, Session(), ("gradients",)).channels["gradients"].verdict == "vacuous"


@pytest.mark.parametrize(
    ("candidate", "place"),
    [
        (lambda w, x: 2 * whole(w, x), "gradients params/w"),
        (lambda w, x: whole(jax.lax.stop_gradient(w), x), "gradients params/w"),
        (row_by_row, ""),
    ],
    ids=["values", "gradients", "none"],
)
@pytest.mark.parametrize("requested", [False, True])
def test_a_proof_names_the_first_result_that_differs(candidate, place, requested):
    case, bench = comparison(candidate)
    work = Evidence.of(case, bench)
    found = equal_exactly(work.sides, work.weights, case, requested=requested)
    assert found.difference.partition("[")[0] == place and found.proved == (not place)
