"""A short run of the campaign; ``python tests/campaigns prover --execute`` is the long one."""

import itertools
import random
import re
from pathlib import Path

import pytest
from campaigns.prover import run
from campaigns.prover.mutate import KINDS, mutants
from campaigns.prover.programs import samples
from campaigns.prover.variants import EDITS, exchange_operands, make_variant

from parity.ir.stablehlo.reader import read_program
from parity.ir.stablehlo.signatures import OpSignatures
from parity.prove import argument_fingerprints, prove
from parity.verdicts import Verdict

pytestmark = pytest.mark.slow

MUTANTS = {
    "forward": 50,
    "grad": 30,
    "train_step": 30,
    "ring": 60,
    "ring_gradient": 60,
    "mixed": 100,
    "indexed": 100,
    "types": 120,
    "symbols": 120,
    "effects": 60,
    "annotated": 80,
}
TRACED = ("forward", "grad", "train_step", "ring", "ring_gradient", "mixed", "indexed")


def sample(name):
    return next(each for each in samples() if each.name == name)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refused(name):
    kills = run.kill(sample(name), MUTANTS[name], seed=1)
    assert kills.holes() == ()
    assert sum(kills.made.values()) >= MUTANTS[name] * 0.9
    matching = sum(each.rule == "definitions of one text" for each in kills.kept)  # two exchanged texts
    assert sum(kills.refused.values()) > 0.85 * (sum(kills.made.values()) - matching)


@pytest.mark.long
def test_every_kind_of_mutant_is_made_and_refused():
    made, refused = set(), set()
    for name in ("train_step", "mixed", "indexed", "types", "symbols", "effects", "annotated"):
        kills = run.kill(sample(name), 25 if name == "train_step" else 40, seed=2)
        made |= set(kills.made)
        refused |= set(kills.refused)
    assert made == refused == set(KINDS)


@pytest.mark.long
def test_a_kept_mutant_gives_the_same_bits():
    kills = run.kill(sample("mixed"), 120, seed=3, execute=True)
    assert all(each.bits for each in kills.kept)


@pytest.mark.long
def test_a_prover_that_reads_no_attributes_leaves_holes(monkeypatch):
    monkeypatch.setattr(OpSignatures, "_text", lambda self, attribute, symbols: "")
    assert run.kill(sample("mixed"), 60, seed=1).holes()


def test_mutants_are_the_same_for_the_same_seed():
    first, second = (
        [
            (each.kind, each.index, each.detail)
            for each in mutants(sample("ring").lowered, random.Random(5), 20)
        ]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.long
@pytest.mark.parametrize("name", TRACED)
def test_operands_of_float_operations_in_another_order_are_reordered(name):
    lowered = sample(name).lowered
    program = read_program(lowered)
    pairs = [[(k, k) for k in range(len(side))] for side in (program.body.parameters, program.body.outputs)]
    proof = prove(
        program, exchange_operands(lowered, random.Random(name)), arguments=pairs[0], results=pairs[1]
    )
    assert (proof.rung, proof.proved) == (Verdict.REORDERED, False)
    assert "in another order" in proof.frontier[0].sentence()
    uses = argument_fingerprints(lowered)
    assert argument_fingerprints(exchange_operands(lowered, random.Random(name))) == uses


@pytest.mark.long
@pytest.mark.parametrize("name", TRACED)
def test_benign_variants_are_proved(name):
    traced = sample(name)
    uses = argument_fingerprints(traced.lowered)
    for number, (variant, proof) in enumerate(run.prove_variants(traced, 24)):
        assert proof.proved, (variant.edits, proof.outcome())
        if number % 4 == 0:
            others = argument_fingerprints(variant.module)
            assert all(uses[a] == others[b] for a, b in variant.arguments)


def test_every_kind_of_benign_edit_is_made():
    for edit in EDITS:
        variant = make_variant(
            sample("mixed" if "branch" in edit else "grad").lowered, random.Random(0), only=(edit,)
        )
        assert edit in variant.edits


@pytest.mark.long
def test_cost_is_near_linear():
    """It counts visited operations, because background load affects time; docs/measurements.md has seconds."""
    costs = [run.cost_of_layers(n) for n in (40, 80, 160)]
    for less, more in itertools.pairwise(costs):
        assert 1.9 * less.operations < more.operations < 2.1 * less.operations


def test_the_page_names_the_edits_that_attack_what_the_strict_proof_equates():
    page = (Path(__file__).parents[3] / "docs" / "soundness.md").read_text()
    assert {name.strip() for name in re.findall(r"EDIT ([^|,]+)", page)} == set(EDITS)
