"""Verdicts and findings: blocking ones, and sentences that a person can act on."""

import dataclasses

import pytest

from parity.verdicts import (
    ANY_RUNG,
    BLOCKING,
    IMPLIES,
    RUNGS,
    ChannelResult,
    Finding,
    Requirement,
    Verdict,
    implies,
    weakest,
)

PASSING = {"proved", "reordered", "bitwise", "floor", "arbitrated", "exact", "tie", "equal"}


def test_blocking_and_passing_results():
    assert {str(verdict) for verdict in BLOCKING} == {"failed", "vacuous", "error", "open"}
    assert {str(verdict) for verdict in Verdict} >= PASSING | {"skipped"} | BLOCKING
    assert not PASSING & {str(verdict) for verdict in BLOCKING}


def test_rungs_are_listed_best_first():
    best_first = ["proved", "reordered", "bitwise", "floor", "arbitrated", "exact"]
    assert [verdict for verdict in Verdict if verdict in best_first] == best_first == list(RUNGS)


def test_the_order_is_one_of_all_verdicts_and_the_list_agrees_with_it():
    assert set(IMPLIES) == set(Verdict)
    places = {verdict: place for place, verdict in enumerate(Verdict)}
    assert all(places[one] < places[below] for one in IMPLIES for below in IMPLIES[one])
    assert all(
        implies(Verdict.PROVED, one) and implies(one, Verdict.ERROR) and implies(one, one) for one in Verdict
    )
    assert not any(
        implies(one, two) and implies(two, one) for one in Verdict for two in Verdict if one != two
    )


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("proved", "exact"),
        ("proved", "equal"),
        ("reordered", "exact"),
        ("bitwise", "arbitrated"),
        ("bitwise", "equal"),
        ("floor", "arbitrated"),
    ],
)
def test_a_stronger_rung_implies_the_weaker_one(above, below):
    assert implies(Verdict(above), Verdict(below)) and not implies(Verdict(below), Verdict(above))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exact", "floor"),
        ("exact", "arbitrated"),
        ("exact", "bitwise"),
        ("exact", "equal"),
        ("reordered", "bitwise"),
        ("reordered", "floor"),
        ("reordered", "equal"),
        ("equal", "floor"),
    ],
)
def test_rungs_with_different_claims_imply_neither_the_other(one, other):
    """`exact` and `reordered` do not cover rounding, `bitwise` and `floor` do not cover other inputs."""
    assert not implies(Verdict(one), Verdict(other)) and not implies(Verdict(other), Verdict(one))


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ("floor", "proved bitwise floor"),
        (Verdict.EXACT, "proved reordered exact"),
        (("floor", "exact"), "proved reordered bitwise floor exact"),
        ([Verdict.BITWISE], "proved bitwise"),
        (("reordered", "bitwise"), "proved reordered bitwise"),
        (RUNGS, "proved reordered bitwise floor arbitrated exact"),
    ],
)
def test_a_requirement_of_several_rungs_is_met_by_any(given, accepted):
    required = Requirement.of(given, "require")
    assert required.accepted == set(accepted.split())
    assert [one for one in Verdict if required.met_by(one)] == accepted.split()
    assert Requirement.of(required, "require") is required


@pytest.mark.parametrize("given", ["flor", "tie", "equal", ("floor", "exakt"), (), "", [3]])
def test_a_requirement_of_no_rung_is_refused(given):
    with pytest.raises(
        ValueError, match=r"^pair toy: require: got .*, expected one or several of proved, reo"
    ):
        Requirement.of(given, "pair toy: require")


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        (("exact", "arbitrated"), ("floor",), ("floor",)),
        (("floor",), ("exact",), ("proved",)),
        (("reordered",), ("exact", "bitwise"), ("reordered",)),
        (("reordered", "bitwise"), ("exact", "floor"), ("reordered", "bitwise")),
        (("bitwise", "floor"), RUNGS, ("floor",)),
    ],
)
def test_two_requirements_are_satisfied_together(one, two, both):
    one, two = Requirement.of(one, "one"), Requirement.of(two, "two")
    assert (one & two).rungs == both and (two & one).accepted == one.accepted & two.accepted
    assert str(one & two) == " or ".join(both) and (one & ANY_RUNG).accepted == one.accepted


def test_the_weakest_verdict_is_implied_by_the_others_of_one_measure():
    assert weakest([Verdict.BITWISE, Verdict.ARBITRATED, Verdict.FLOOR]) is Verdict.ARBITRATED
    assert weakest([Verdict.FLOOR, Verdict.FAILED]) is Verdict.FAILED


FULL = Finding(
    where="params/layers/kernel[0, 2]",
    reference="0.5",
    candidate="0.25",
    distance="3 x noise",
    cause="a transposed kernel",
    next_step="give the pair a weight rule",
)


def test_a_full_sentence():
    assert FULL.sentence() == (
        "params/layers/kernel[0, 2]: reference 0.5, candidate 0.25; 3 x noise; "
        "likely a transposed kernel; give the pair a weight rule"
    )


@pytest.mark.parametrize(
    ("field", "phrase"), [("distance", "3 x noise"), ("cause", "likely"), ("next_step", "weight rule")]
)
def test_unknown_quantities_are_left_out(field, phrase):
    sentence = dataclasses.replace(FULL, **{field: ""}).sentence()
    assert phrase in FULL.sentence() and phrase not in sentence
    assert "; ;" not in sentence and not sentence.endswith("; ")


def test_the_shortest_sentence_names_place_and_both_sides():
    assert Finding(where="x", reference="1", candidate="2").sentence() == "x: reference 1, candidate 2"


def test_results_are_values():
    result = ChannelResult(name="values", verdict=Verdict.BITWISE)
    assert result == ChannelResult(name="values", verdict=Verdict.BITWISE, detail="", findings=())
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.verdict = Verdict.FAILED
