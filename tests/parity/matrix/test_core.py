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


def left_out(cases):
    """Returns what no case of the core has: pairs of options, and all else that cases written by hand are worth."""
    brought = worths(cases)
    core = {case.id for case in select(cases, ["core"])}
    missed = choose.required(brought) - set().union(*(brought[id] for id in core))
    pairs = {one for one in missed if choose.is_pair(one)}
    return pairs, missed - pairs


@pytest.mark.slow
def test_options_differences_and_nearly_all_pairs_of_handwritten_cases_are_in_the_core(matrix):
    pairs, others = left_out(matrix)
    advice = "python tests/campaigns matrix.core writes the core again"
    assert not others, advice
    every = [one for one in choose.required(worths(matrix)) if choose.is_pair(one)]
    assert len(pairs) <= choose.REST * len(every), advice


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
    pairs, others = left_out([*matrix, fresh])
    assert ("logits_soft_cap", "7.0") in others
    assert any(("logits_soft_cap", "7.0") in pair for pair in pairs)


def test_the_cheaper_of_two_equal_ones_is_taken(matrix):
    cases = [case for case in matrix if case.id.startswith(("llama2-scan/train_step@", "llama2-scan/grad@"))]
    cases = [dataclasses.replace(case, smoke=False) for case in cases]
    costs = {case.id: 1.0 for case in cases}
    first = choose.choose(cases, costs)
    assert set(first) <= {case.id for case in cases}
    brought = worths(cases)
    had, wanted = set().union(*(brought[id] for id in first)), choose.required(brought)
    assert all(one in had or choose.is_pair(one) for one in wanted)
    assert len(wanted - had) <= choose.REST * len(wanted)
