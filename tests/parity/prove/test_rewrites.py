"""The list of rewrites: each is proved, is ``reordered`` by named rules, or has a reason why not."""

import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from parity.compare.backends.registry import find
from parity.ir.hlo.anonymous import compiled_digest
from parity.prove.exact import Link, Named, Relation, equal
from parity.prove.rules import EXACT
from parity.verdicts import Verdict

sys.path.append(str(Path(__file__).parent / "rewrites"))

import batches  # pyright: ignore[reportMissingImports]
from fuzz import examine  # pyright: ignore[reportMissingImports]
from measure import (  # pyright: ignore[reportMissingImports]
    REWRITES,
    STEPS,
    compare,
    differ,
    gradient,
    lower,
)
from reasons import REASONS  # pyright: ignore[reportMissingImports]
from steps import Step  # pyright: ignore[reportMissingImports]

pytestmark = pytest.mark.slow


SWAPS = {"compare-direction", "select-negated"}
"""Exact rules that use `may_swap`, so that the strict proof does not always apply them."""


def test_the_list_is_long_and_reasons_are_for_its_entries():
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names) >= 200
    assert set(REASONS) < set(names)


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_is_proved_or_has_a_reason(rewrite):
    _, _, proof = rewrite.prove()
    assert (proof.rung is Verdict.UNPROVED) == (rewrite.name in REASONS), proof.outcome()
    if proof.rung is Verdict.PROVED:
        assert set(proof.rules) <= EXACT
    if proof.rung is Verdict.REORDERED:
        assert not proof.rules or set(proof.rules) - EXACT | SWAPS & set(proof.rules), proof.outcome()


@pytest.mark.parametrize("step", STEPS[::3], ids=lambda step: step.name)
def test_proved_programs_give_the_same_bits(step):
    left, right, proof = compare(step.one, step.other)
    if proof.proved:
        assert differ(left, right) == []


def test_the_measure_notices_other_bits():
    """Else it could not fail: the bits of this step differ."""
    step = next(step for step in STEPS if step.name == "boolean to number at once")
    left, right, proof = compare(step.one, step.other)
    assert proof.rung is Verdict.UNPROVED and differ(left, right)


def _summed(join):
    return lambda x, y, v, t, k: (-join(x, y)).sum(1, keepdims=True) * y


IN_PARTS = Step(
    name="sum of the negated, put in place or joined",
    one=_summed(lambda x, y: lax.dynamic_update_slice(x, y[:, :2], (0, 0, 0))),
    other=_summed(lambda x, y: jnp.concatenate([y[:, :2], x[:, 2:]], 1)),
)


def test_the_negation_of_a_concatenation_is_added_up_in_parts_that_of_an_update_is_not():
    """The reason why update-in-place is loose, even where an elementwise operation reads the array first."""
    left, right, proof = compare(IN_PARTS.one, IN_PARTS.other)
    assert proof.rung is Verdict.REORDERED and "update-in-place" in proof.rules
    assert differ(left, right)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_that_are_proved_give_the_same_bits(seed):
    proof, names, differing = examine(seed)
    assert not differing, (names, proof.rules)


@pytest.mark.long
def test_proved_random_programs_with_near_misses_give_the_same_bits():
    batch = batches.examine(7, 40)
    assert batch.programs == 40 and batch.proved > batch.run > 0 and batch.missed > 4
    assert batch.proved_missed <= 2 and batch.wrong == ()


def test_a_batch_notices_other_bits(monkeypatch):
    """Else it could not fail: a rule that changes bits is added to the exact ones."""
    monkeypatch.setattr(batches, "STEPS", (IN_PARTS,))
    monkeypatch.setattr(batches, "EXACT", batches.EXACT | {"update-in-place"})
    assert batches.examine(0, 12).wrong


@pytest.mark.long
@pytest.mark.parametrize("derive", [lambda run: run, gradient], ids=["forward", "gradient"])
def test_sides_that_compile_to_one_program_give_the_same_bits(derive):
    """It tests forms and near misses: two programs with one digest by chance would be detected."""
    cpu, matching, differing = find("cpu"), 0, 0
    for step in STEPS[::3]:
        sides = [lower(derive(run)) for run in (step.one, step.other, step.miss) if run]
        digests = [compiled_digest(cpu.start(side)()) for side in sides]
        assert None not in digests
        for left, right in itertools.combinations(range(len(sides)), 2):
            if digests[left] != digests[right]:
                differing += 1
            else:
                matching += 1
                assert differ(sides[left], sides[right]) == [], step.name
    assert matching > 10 and differing > 10


@pytest.mark.parametrize("kind", ["forward", "gradient"])
def test_attention_of_flax_is_equal_in_exact_arithmetic(kind):
    """One divides the queries by a root, the other multiplies the scores: different roundings, one function."""
    rewrite = next(one for one in REWRITES if one.name == f"attention of Linen and NNX, {kind}")
    sides = rewrite.prove()[:2]
    arguments, results = (
        [f"{word}{place}" for place in range(len(jax.tree.leaves(tree)))]
        for word, tree in (("a", sides[0].args_info), ("r", sides[0].out_info))
    )
    links = [[Link(reference=(name,), candidate=(name,)) for name in names] for names in (arguments, results)]
    named = [Named(program=side, arguments=arguments, results=results) for side in sides]
    found = equal(*named, Relation(arguments=links[0], results=links[1]))
    assert found.proved, found
