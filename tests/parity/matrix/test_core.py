"""The core of the matrix: its required and excluded cases, and the error if a case adds something new."""

import dataclasses

import pytest
from campaigns.matrix import core as choose
from campaigns.matrix.core import worths

from parity.cases.case import select
from parity.cases.settings import collect


@pytest.fixture(scope="module")
def matrix():
    return collect((), {})[1]


def missing(cases):
    """Returns the worth that cases written by hand have and no case of the core has."""
    brought = worths(cases)
    core = {case.id for case in select(cases, ["core"])}
    had = set().union(*(worth for id, worth in brought.items() if id in core))
    hand = {id: worth for id, worth in brought.items() if not id.startswith(choose.COVERING)}
    return {id: worth - had for id, worth in hand.items() if worth - had}


@pytest.mark.slow
def test_combinations_of_handwritten_cases_are_in_the_core(matrix):
    assert missing(matrix) == {}, "python tests/campaigns matrix.core writes the core again"


def test_it_is_a_small_part_and_has_the_subset(matrix):
    core = {case.id for case in select(matrix, ["core"])}
    assert {case.id for case in matrix if case.smoke} <= core
    assert len(core) < len(matrix) / 3


@pytest.mark.slow
def test_a_case_that_brings_something_new_is_missed(matrix):
    (one,) = (case for case in matrix if case.id == "llama2-scan-dropout/train_step@fsdp4.tensor2-auto")
    variant = one.reference.func.__self__
    config = dataclasses.replace(variant.config, scan_axis=0, logits_soft_cap=7.0)
    fresh = one.explore.with_settings({"scan_axis": "0", "logits_soft_cap": "7.0"})
    assert fresh.reference.func.__self__.config == config
    (left,) = missing([*matrix, fresh]).values()
    assert any(("logits_soft_cap", "7.0") in pair for pair in left)


def test_the_cheaper_of_two_equal_ones_is_taken(matrix):
    cases = [case for case in matrix if case.id.startswith(("llama2-scan/train_step@", "llama2-scan/grad@"))]
    cases = [dataclasses.replace(case, smoke=False) for case in cases]
    costs = {case.id: 1.0 for case in cases}
    first = choose.choose(cases, costs)
    assert set(first) <= {case.id for case in cases}
    brought = worths(cases)
    assert set().union(*(brought[id] for id in first)) == set().union(*brought.values())
