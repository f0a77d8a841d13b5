"""Moved weights in proofs by rules: required and forbidden equalities, and the bits of both sides."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.prover.execute import EXTREMES, same_numbers, wild_inputs
from campaigns.prover.modules import run_module

from parity.ir.jax_internals import stablehlo_module
from parity.prove import UnpairedPositions, WeightView, prove
from parity.verdicts import Verdict

sys.path.append(str(Path(__file__).parent / "rewrites"))

from layouts import LAYOUTS, B, D, H, K, lowered, moves  # pyright: ignore[reportMissingImports]

LEVELS = (0, 3)


@pytest.fixture(autouse=True)
def as_people_write():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("name", LAYOUTS)
def test_moves_of_the_weight_map_are_proved_by_a_named_rule(name):
    layout = LAYOUTS[name]
    left, right = lowered(layout.left, layout.shapes), lowered(layout.right, (layout.whole,))
    proof = prove(left, right, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout))
    assert proof.rung is layout.rung, proof.outcome()
    assert {"moved-weights", "turned-weights"} & set(proof.rules) and not proof.same_program
    turned = prove(right, left, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout, side=1))
    assert turned.rung is layout.rung, turned.sentence()


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_almost_right_read_of_the_whole_is_refused(name):
    layout = LAYOUTS[name]
    left, right = lowered(layout.left, layout.shapes), lowered(layout.near, (layout.whole,))
    proof = prove(left, right, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout))
    assert proof.rung is Verdict.UNPROVED and proof.frontier


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("heads apart", (("reshape", (D, K, H)), ("transpose", (0, 2, 1)))),
        ("stacked layers", (("reshape", (D, 1, D)), ("join", (1,)), ("reshape", (3, D, D)))),
        ("stacked along the middle", (("join", (1,)), ("reshape", (D, D, 2)), ("transpose", (0, 2, 1)))),
    ],
)
def test_another_map_is_not(name, steps):
    layout = LAYOUTS[name]
    left, right = lowered(layout.left, layout.shapes), lowered(layout.right, (layout.whole,))
    given = moves(layout, steps=steps)
    assert prove(left, right, arguments=[(0, 0)], results=[(0, 0)], alone=given).rung is Verdict.UNPROVED


def slope(run):
    return lambda x, *w: jax.grad(lambda *w: jnp.sum(jnp.tanh(run(x, *w))), tuple(range(len(w))))(*w)


@pytest.mark.parametrize("name", ["a flat bias", "transposed"])
def test_gradients_are_moved_too(name):
    layout = LAYOUTS[name]
    reference = lowered(lambda x, w: (layout.left(x, w).sum(), *slope(layout.left)(x, w)), layout.shapes)
    for run, same in ((layout.right, True), (lambda x, w: 2.0 * layout.right(x, w), False)):
        candidate = lowered(
            lambda x, w, run=run: (layout.right(x, w).sum(), *slope(run)(x, w)), (layout.whole,)
        )
        proof = prove(
            reference, candidate, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout, gradients=True)
        )
        assert (proof.rung is not Verdict.UNPROVED) is same, proof.outcome()
        assert same or any(entry.where == "result gradient of w" for entry in proof.frontier)


def test_a_result_that_is_moved_and_not_returned_moved_is_not_met():
    layout = LAYOUTS["heads apart"]
    alone = moves(layout, gradients=True)
    reference = lowered(lambda x, w: (x, 2.0 * w), layout.shapes)
    right = lowered(lambda x, w: (x, 2.0 * w), (layout.whole,))
    wrong = lowered(lambda x, w: (x, 2.0 * w[:, ::-1]), (layout.whole,))
    assert (
        prove(reference, right, arguments=[(0, 0)], results=[(0, 0)], alone=alone).rung
        is not Verdict.UNPROVED
    )
    proof = prove(reference, wrong, arguments=[(0, 0)], results=[(0, 0)], alone=alone)
    assert proof.rung is Verdict.UNPROVED
    assert [entry.where for entry in proof.frontier][-1] == "result gradient of w"


def test_an_unread_part_is_no_part_of_the_reading():
    layout = LAYOUTS["stacked layers"]
    left = jax.jit(lambda x, *w: x @ w[0] @ w[2]).lower(
        *[jax.ShapeDtypeStruct(s, jnp.float32) for s in ((B, D), *layout.shapes)]
    )
    group = WeightView(
        name="w", side=0, parts=(1, None, 2), shapes=layout.shapes, whole=1, steps=layout.steps
    )
    for run, same in ((lambda x, w: x @ w[0] @ w[2], True), (lambda x, w: x @ w[0] @ w[1], False)):
        right = lowered(run, (layout.whole,))
        proof = prove(
            left,
            right,
            arguments=[(0, 0)],
            results=[(0, 0)],
            alone=UnpairedPositions(moved_arguments=(group,)),
        )
        assert proof.proved is same


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.rung is Verdict.PROVED])
def test_proved_programs_give_the_same_bits(name):
    layout = LAYOUTS[name]
    modules = [
        stablehlo_module(each)
        for each in (lowered(layout.left, layout.shapes), lowered(layout.right, (layout.whole,)))
    ]
    fed = [wild_inputs(modules[0], kind, 0) for kind in EXTREMES]
    moved = [[x, np.ascontiguousarray(layout.join(parts))] for x, *parts in fed]
    for level in LEVELS:
        runs = [run_module(module, data, level) for module, data in zip(modules, (fed, moved), strict=True)]
        for kind, reference, candidate in zip(EXTREMES, *runs, strict=True):
            assert same_numbers(reference, candidate), (kind, level)
