"""Weights that the map moves, taken through the proof by rules: what meets, what must not, and the bits of both."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.prover.execute import WILD, same_numbers, wild_inputs

from parity.ir.jax_internals import run_module, stablehlo_module
from parity.prove import Alone, WeightView, WeightViews, prove
from parity.verdicts import Verdict

# B rows, D features, H heads, K width of a head
B, D, H, K = 5, 6, 2, 3
LEVELS = (0, 3)


@pytest.fixture(autouse=True)
def as_people_write():
    with jax.numpy_rank_promotion("allow"):
        yield


@dataclasses.dataclass(frozen=True)
class Layout:
    """A weight in two layouts: parts on the left, a whole on the right, and functions that read them.

    ``near`` reads the whole almost right.
    """

    shapes: tuple[tuple[int, ...], ...]
    whole: tuple[int, ...]
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    left: Callable
    right: Callable
    near: Callable
    rung: Verdict = Verdict.PROVED

    def join(self, parts):
        """The same by NumPy: an oracle apart from the prover."""
        arrays = list(parts)
        for name, numbers in self.steps:
            if name == "join":
                arrays = [np.concatenate(arrays, numbers[0])]
            else:
                move = np.reshape if name == "reshape" else np.transpose
                arrays = [move(array, numbers) for array in arrays]
        return arrays[0]


def stacked(count, shape, axis):
    return (("reshape", (*shape[:axis], 1, *shape[axis:])), ("join", (axis,)))


LAYOUTS = {
    "heads apart": Layout(
        shapes=((D, H * K),),
        whole=(D, H, K),
        steps=(("reshape", (D, H, K)),),
        left=lambda x, w: jnp.tanh(x @ w).reshape(B, H, K),
        right=lambda x, w: jnp.tanh(jnp.einsum("bd,dhk->bhk", x, w).reshape(B, H * K)).reshape(B, H, K),
        near=lambda x, w: jnp.tanh(jnp.einsum("bd,dhk->bkh", x, w).reshape(B, H * K)).reshape(B, H, K),
    ),
    "a flat bias": Layout(
        shapes=((H, K),),
        whole=(H * K,),
        steps=(("reshape", (H * K,)),),
        left=lambda x, b: x + b.reshape(H * K),
        right=lambda x, b: x + b,
        near=lambda x, b: x + b[::-1],
    ),
    "stacked layers": Layout(
        shapes=((D, D), (D, D), (D, D)),
        whole=(3, D, D),
        steps=stacked(3, (D, D), 0),
        left=lambda x, *w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2],
        right=lambda x, w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2],
        near=lambda x, w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[2]) @ w[1],
    ),
    "stacked along the middle": Layout(
        shapes=((D, D), (D, D)),
        whole=(D, 2, D),
        steps=stacked(2, (D, D), 1),
        left=lambda x, *w: x @ w[0] * (x @ w[1]),
        right=lambda x, w: x @ w[:, 0] * (x @ w[:, 1]),
        near=lambda x, w: x @ w[:, 0] * (x @ w[:, 0]),
    ),
    "gate beside up": Layout(
        shapes=((D, 4), (D, 4)),
        whole=(D, 8),
        steps=(("join", (1,)),),
        left=lambda x, a, b: jnp.tanh(x @ a) * (x @ b),
        right=lambda x, w: jnp.tanh(x @ w[:, :4]) * (x @ w[:, 4:]),
        near=lambda x, w: jnp.tanh(x @ w[:, :4]) * (x @ w[:, 3:7]),
    ),
    "whole on one side, parts joined on the other": Layout(
        shapes=((D, 2), (D, 4)),
        whole=(D, 6),
        steps=(("join", (1,)),),
        left=lambda x, a, b: jnp.tanh(x @ jnp.concatenate([a, b], 1)),
        right=lambda x, w: jnp.tanh(x @ w),
        near=lambda x, w: jnp.tanh(x @ jnp.roll(w, 2, 1)),
    ),
    "transposed": Layout(
        shapes=((D, 4),),
        whole=(4, D),
        steps=(("transpose", (1, 0)),),
        left=lambda x, w: x @ w,
        right=lambda x, w: x @ w.T,
        near=lambda x, w: x @ w.T[:, ::-1],
        rung=Verdict.REORDERED,
    ),
}


def lowered(run, shapes):
    return jax.jit(run, keep_unused=True).lower(
        *[jax.ShapeDtypeStruct(s, jnp.float32) for s in ((B, D), *shapes)]
    )


def moves(layout, *, gradients=False, side=0, steps=None):
    group = WeightView(
        name="w",
        side=side,
        parts=tuple(range(1, 1 + len(layout.shapes))),
        shapes=layout.shapes,
        whole=1,
        steps=layout.steps if steps is None else steps,
    )
    back = dataclasses.replace(group, name="gradient of w")
    return Alone(moves=WeightViews(arguments=(group,), results=(back,) if gradients else ()))


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_the_map_moves_is_proved_by_a_rule_with_a_name(name):
    layout = LAYOUTS[name]
    left, right = lowered(layout.left, layout.shapes), lowered(layout.right, (layout.whole,))
    proof = prove(left, right, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout))
    assert proof.rung is layout.rung, proof.sentence()
    assert {"moved-weights", "turned-weights"} & set(proof.rules) and not proof.same_program
    turned = prove(right, left, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout, side=1))
    assert turned.rung is layout.rung, turned.sentence()


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_reads_the_whole_almost_right_is_not(name):
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


@pytest.mark.parametrize("name", ["heads apart", "a flat bias"])
def test_gradients_are_moved_too(name):
    layout = LAYOUTS[name]
    ours = lowered(lambda x, w: (layout.left(x, w).sum(), *slope(layout.left)(x, w)), layout.shapes)
    for run, same in ((layout.right, True), (lambda x, w: 2.0 * layout.right(x, w), False)):
        theirs = lowered(lambda x, w, run=run: (layout.right(x, w).sum(), *slope(run)(x, w)), (layout.whole,))
        proof = prove(ours, theirs, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout, gradients=True))
        assert (proof.rung is not Verdict.UNPROVED) is same, proof.sentence()
        assert same or any(entry.where == "result gradient of w" for entry in proof.frontier)


def test_a_result_that_is_moved_and_not_returned_moved_is_not_met():
    layout = LAYOUTS["heads apart"]
    alone = moves(layout, gradients=True)
    ours = lowered(lambda x, w: (x, 2.0 * w), layout.shapes)
    right = lowered(lambda x, w: (x, 2.0 * w), (layout.whole,))
    wrong = lowered(lambda x, w: (x, 2.0 * w[:, ::-1]), (layout.whole,))
    assert prove(ours, right, arguments=[(0, 0)], results=[(0, 0)], alone=alone).rung is not Verdict.UNPROVED
    proof = prove(ours, wrong, arguments=[(0, 0)], results=[(0, 0)], alone=alone)
    assert proof.rung is Verdict.UNPROVED
    assert [entry.where for entry in proof.frontier][-1] == "result gradient of w"


def test_a_part_that_is_not_read_is_no_part_of_what_is():
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
            alone=Alone(moves=WeightViews(arguments=(group,))),
        )
        assert proof.proved is same


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.rung is Verdict.PROVED])
def test_what_is_proved_gives_the_same_bits(name):
    layout = LAYOUTS[name]
    modules = [
        stablehlo_module(each)
        for each in (lowered(layout.left, layout.shapes), lowered(layout.right, (layout.whole,)))
    ]
    fed = [wild_inputs(modules[0], kind, 0) for kind in WILD]
    moved = [[x, np.ascontiguousarray(layout.join(parts))] for x, *parts in fed]
    for level in LEVELS:
        runs = [run_module(module, data, level) for module, data in zip(modules, (fed, moved), strict=True)]
        for kind, ours, theirs in zip(WILD, *runs, strict=True):
            assert same_numbers(ours, theirs), (kind, level)
