"""Weight rules that do not fit, and stacked axes that nothing tells, are said early."""

import pytest

from parity.programs.tree import Leaf, Role
from parity.weights.inference import infer
from parity.weights.map import Rule
from parity.weights.transforms import Split


def leaf(path, shape):
    return Leaf(path=path, shape=shape, dtype="float32", role=Role.PARAMS, kind="Param")


def test_a_rule_whose_shapes_do_not_fit_says_so_at_once():
    rule = Rule(reference=("qkv",), candidate=("q", "k"), transform=Split(axis=0, sizes=(2, 2)))
    sides = {"qkv": leaf("qkv", (4, 3))}, {"q": leaf("q", (2, 3)), "k": leaf("k", (2, 5))}
    message = (
        r"weight rule for \['qkv'\]: split.* of \[\(4, 3\)\] gives .* expected \[\(2, 3\), \(2, 5\)\] of"
    )
    with pytest.raises(ValueError, match=message):
        infer(*sides, [rule])


def test_a_stack_axis_that_nothing_tells_is_reported():
    single = {f"layers_{i}/w": leaf(f"layers_{i}/w", (3,)) for i in range(3)}
    weights = infer({"layers/w": leaf("layers/w", (3, 3))}, single)
    (entry,) = weights.guessed
    assert entry.matched_by == "name of a stack, axis guessed: 0 of 0, 1 that fit"
    assert infer({"layers/w": leaf("layers/w", (2, 3))}, dict(list(single.items())[:2])).guessed == []
