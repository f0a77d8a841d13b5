"""Verdicts and findings: what blocks, and sentences a person can act on."""

import dataclasses

import pytest

from parity.verdicts import BLOCKING, RUNGS, ChannelResult, Finding, Verdict

PASSING = {"proved", "reordered", "bitwise", "floor", "arbitrated", "exact", "tie", "equal"}


def test_what_blocks_and_what_passes():
    assert {str(verdict) for verdict in BLOCKING} == {"failed", "vacuous", "error", "open"}
    assert {str(verdict) for verdict in Verdict} >= PASSING | {"skipped"} | BLOCKING
    assert not PASSING & {str(verdict) for verdict in BLOCKING}


def test_rungs_are_listed_best_first():
    best_first = ["proved", "reordered", "bitwise", "floor", "arbitrated", "exact"]
    assert [verdict for verdict in Verdict if verdict in best_first] == best_first == list(RUNGS)


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
def test_what_is_not_known_is_left_out(field, phrase):
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
