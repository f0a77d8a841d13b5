"""Two programs with one text are read once, if each argument and result has its partner at its own position."""

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.build import linen_build
from parity.builds.tree import Role
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Identity
from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.prove import UnpairedPositions, proof
from parity.verdicts import Verdict

# B batch, D width
B, D = 5, 4
REPLICATED = jax.sharding.PartitionSpec()


def forward(x, one, two):
    return jnp.tanh(x @ one) @ two


def same_text(x, one, two):
    inner = x @ one
    return jnp.tanh(inner) @ two


def scaled(x, one, two):
    return 2.0 * (jnp.tanh(x @ one) @ two)


def scaled_otherwise(x, one, two):
    return 3.0 * (jnp.tanh(x @ one) @ two)


def build(function, result):
    def create(key):
        keys = jax.random.split(key, 2)
        leaves = zip(("one", "two"), keys, strict=True)
        return {"params": {leaf: jax.random.normal(each, (D, D)) for leaf, each in leaves}}

    def run(state, inputs):
        return {"values": {result: function(inputs["x"], state["params"]["one"], state["params"]["two"])}}

    return linen_build(
        function.__name__,
        create,
        {"forward": (run, {})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def paired(left, right, partners, results=("out", "out")):
    """Returns the evidence of two functions under a map of their leaves."""
    sides = [build(function, name) for function, name in zip((left, right), results, strict=True)]
    case = Case(
        id="toy/forward@single",
        reference=lambda: sides[0],
        candidate=lambda: sides[1],
        program="forward",
    )
    entries = [
        Entry(
            reference=(f"params/{one}",),
            candidate=(f"params/{other}",),
            transform=Identity(),
            role=Role.PARAMS,
            matched_by="path",
        )
        for one, other in partners.items()
    ]
    return Evidence.of(case, Session()).under(WeightMap(tuple(entries)))


IN_PLACE = {"one": "one", "two": "two"}


def test_one_text_is_read_once_and_proved_with_the_operations_of_both():
    evidence = paired(forward, same_text, IN_PLACE)
    assert evidence.read_sides == (evidence.reference, evidence.reference)
    assert evidence.proof.proved and evidence.proof.operations[0] == evidence.proof.operations[1] > 0


def test_a_program_that_is_compared_with_itself_needs_no_numbers(monkeypatch):
    evidence = paired(forward, same_text, IN_PLACE)
    monkeypatch.setattr(proof, "number_program", None)
    assert evidence.proof.same_program


def test_a_program_differs_from_itself_under_other_pairs():
    program = paired(forward, same_text, IN_PLACE).reference.operations
    assert len(program.body.parameters) == 3
    crossed = ((0, 1), (1, 0), (2, 2))
    assert not proof.prove(program, program, arguments=crossed, results=((0, 0),)).proved
    alone = UnpairedPositions(arguments=((0,), (0,)))
    found = proof.prove(program, program, arguments=((1, 1), (2, 2)), results=((0, 0),), alone=alone)
    assert not found.proved


def test_one_text_of_leaves_paired_crosswise_is_no_proof():
    evidence = paired(forward, same_text, {"one": "two", "two": "one"})
    assert evidence.read_sides == evidence.sides
    assert evidence.proof.rung is Verdict.UNPROVED


def test_another_constant_is_another_text():
    evidence = paired(scaled, scaled_otherwise, IN_PLACE)
    assert evidence.read_sides == evidence.sides
    assert not evidence.proof.proved


def test_results_without_partners_are_not_compared_by_text():
    evidence = paired(forward, same_text, IN_PLACE, results=("out", "other"))
    assert evidence.read_sides == evidence.sides
    assert not evidence.proof.proved
