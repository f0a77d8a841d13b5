"""The list of rewrites: each is proved, or is ``reordered`` by rules that are named, or has a reason why not."""

import sys
from pathlib import Path

import pytest

from parity.prove.rules import EXACT
from parity.verdicts import Verdict

sys.path.append(str(Path(__file__).parent / "rewrites"))

import batches  # pyright: ignore[reportMissingImports]
from fuzz import examine  # pyright: ignore[reportMissingImports]
from measure import REWRITES, STEPS, compare, differ  # pyright: ignore[reportMissingImports]
from reasons import REASONS  # pyright: ignore[reportMissingImports]

pytestmark = pytest.mark.slow


def test_the_list_is_long_and_reasons_are_for_what_is_in_it():
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names) >= 200
    assert set(REASONS) < set(names)


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_is_proved_or_has_a_reason(rewrite):
    _, _, proof = rewrite.prove()
    assert (proof.rung is Verdict.UNPROVED) == (rewrite.name in REASONS), proof.sentence()
    if proof.rung is Verdict.PROVED:
        assert set(proof.rules) <= EXACT
    if proof.rung is Verdict.REORDERED:
        assert set(proof.rules) - EXACT, proof.sentence()


@pytest.mark.parametrize("step", STEPS[::3], ids=lambda step: step.name)
def test_what_is_proved_gives_the_same_bits(step):
    left, right, proof = compare(step.one, step.other)
    if proof.proved:
        assert differ(left, right) == []


def test_the_measure_notices_other_bits():
    """Else it could not fail: rules that are loose because of it."""
    step = next(step for step in STEPS if step.name == "boolean to number at once")
    left, right, proof = compare(step.one, step.other)
    assert proof.rung is Verdict.REORDERED and differ(left, right)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_that_are_proved_give_the_same_bits(seed):
    proof, names, apart = examine(seed)
    assert not apart, (names, proof.rules)


def test_a_batch_of_random_programs_with_near_misses_gives_the_same_bits_where_it_is_proved():
    batch = batches.examine(7, 40)
    assert batch.programs == 40 and batch.proved > batch.run > 0 and batch.missed > 4
    assert batch.proved_missed <= 2 and batch.wrong == ()


def test_a_batch_notices_other_bits(monkeypatch):
    """Else it could not fail: a rule that is loose because of other bits, taken for exact."""
    step = next(step for step in STEPS if step.name == "boolean to number at once")
    monkeypatch.setattr(batches, "STEPS", (step,))
    monkeypatch.setattr(batches, "EXACT", batches.EXACT | {"boolean-through-wider"})
    assert batches.examine(0, 12).wrong
