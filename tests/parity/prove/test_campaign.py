"""A short run of the campaign; ``python -m parity.prove.campaign --execute`` is the long one."""

import random

import jax
import jax.numpy as jnp
import pytest

from parity.prove import argument_fingerprints, program_fingerprint
from parity.prove.campaign import run
from parity.prove.campaign.mutate import KINDS, mutants
from parity.prove.campaign.programs import samples
from parity.prove.campaign.variants import EDITS
from parity.prove.words import Words

SAMPLES = {sample.name: sample for sample in samples()}
MUTANTS = {"forward": 100, "grad": 100, "train_step": 100, "ring": 60, "ring_gradient": 100, "mixed": 200}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refused(name):
    kills = run.kill(SAMPLES[name], MUTANTS[name], seed=1)
    assert kills.holes() == ()
    assert sum(kills.made.values()) >= MUTANTS[name] * 0.9
    assert sum(kills.refused.values()) > 0.85 * sum(kills.made.values())


def test_every_kind_of_mutant_is_made_and_refused():
    made, refused = set(), set()
    for name in ("train_step", "mixed"):
        kills = run.kill(SAMPLES[name], 40, seed=2)
        made |= set(kills.made)
        refused |= set(kills.refused)
    assert made == refused == set(KINDS)


def test_a_kept_mutant_gives_the_same_bits():
    kills = run.kill(SAMPLES["mixed"], 120, seed=3, execute=True)
    assert all(each.bits for each in kills.kept)


def test_a_prover_that_reads_no_attributes_leaves_holes(monkeypatch):
    monkeypatch.setattr(Words, "_text", lambda self, attribute, symbols: "")
    assert run.kill(SAMPLES["mixed"], 60, seed=1).holes()


def test_mutants_are_the_same_for_the_same_seed():
    first, second = (
        [
            (each.kind, each.index, each.detail)
            for each in mutants(SAMPLES["ring"].lowered, random.Random(5), 20)
        ]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("name", MUTANTS)
def test_benign_variants_are_proved(name):
    sample = SAMPLES[name]
    uses, fingerprint = (
        argument_fingerprints(sample.lowered),
        program_fingerprint(sample.lowered, ordered=False),
    )
    edits = set()
    for number, (variant, proof) in enumerate(run.prove_variants(sample, 34)):
        assert proof.proved, (variant.edits, proof.sentence())
        edits |= set(variant.edits)
        if number % 4 == 0:
            others = argument_fingerprints(variant.module)
            assert all(uses[a] == others[b] for a, b in variant.arguments)
            assert program_fingerprint(variant.module, ordered=False) == fingerprint
    assert edits >= set(EDITS)


def test_cost_is_near_linear():
    costs = [
        min((run.cost_of_layers(n) for _ in range(3)), key=lambda cost: cost.seconds) for n in (40, 80, 160)
    ]
    assert costs[2].operations > 1.9 * costs[1].operations
    assert costs[2].seconds < 2.5 * costs[1].seconds
    assert costs[2].operations / costs[2].seconds > 20_000  # 100k to 180k on a free core


def _deep(levels):
    def run(x):
        return jnp.sin(x)

    for _ in range(levels):
        run = _twice(run)
    return run


def _twice(inner):
    def run(x):
        def body(carry, _):
            return (carry[1], inner(carry[0]) + carry[1]), None

        return jax.lax.scan(body, (x, x), None, length=3)[0][0]

    return run


def test_nested_loops_do_not_multiply_the_cost(check):
    inputs = (jax.ShapeDtypeStruct((3,), jnp.float32),)
    visited = []
    for levels in (3, 6):
        proof = check(_deep(levels), jax.jit(_deep(levels)), inputs)
        assert proof.proved
        visited.append(proof.operations[0])
    assert visited[1] < 4 * visited[0], visited
