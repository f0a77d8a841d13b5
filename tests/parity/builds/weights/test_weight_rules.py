"""Weight rules that do not fit, and ambiguous stacked axes, are reported early."""

import dataclasses

import pytest

from parity.builds.tree import Leaf, Role
from parity.builds.weights.inference import infer
from parity.builds.weights.map import MapError, Rule
from parity.builds.weights.modules import Programs
from parity.builds.weights.transforms import Split


def leaf(path, shape):
    return Leaf(path=path, shape=shape, dtype="float32", role=Role.PARAMS)


def test_a_rule_whose_shapes_do_not_fit_is_an_error_at_once():
    rule = Rule(reference=("qkv",), candidate=("q", "k"), transform=Split(axis=0, sizes=(2, 2)))
    sides = {"qkv": leaf("qkv", (4, 3))}, {"q": leaf("q", (2, 3)), "k": leaf("k", (2, 5))}
    message = (
        r"weight rule for \['qkv'\]: split.* of \[\(4, 3\)\] gives .* expected \[\(2, 3\), \(2, 5\)\] of"
    )
    with pytest.raises(ValueError, match=message):
        infer(*sides, [rule])


def test_an_unidentified_stack_axis_is_reported():
    single = {f"layers_{i}/w": leaf(f"layers_{i}/w", (3,)) for i in range(3)}
    weights = infer({"layers/w": leaf("layers/w", (3, 3))}, single)
    (entry,) = weights.guessed
    assert entry.matched_by == "name, axis guessed: 0 of 0, 1 that fit"
    assert infer({"layers/w": leaf("layers/w", (2, 3))}, dict(list(single.items())[:2])).guessed == []


KERNELS = ("up/kernel", "out/kernel")
REFERENCE = {name: leaf(name, (3, 3)) for name in KERNELS}
CANDIDATE = {name: leaf(name, (3, 3)) for name in ("up/w", "out/w")}


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("upp/kernel", "up/kernel"),
        ("params/up/kernel", "up/kernel"),
        ("up/kernal", "up/kernel"),
        (r"layers/\d+/kernel", "up/kernel"),
        ("kernel", "up/kernel"),
        (r"(up|out)/bias", "out/kernel"),
        ("UP/KERNEL", "up/kernel"),
    ],
)
def test_a_rule_whose_pattern_matches_nothing_names_the_nearest_leaves(pattern, nearest):
    rule = Rule(reference=(pattern,), candidate=("up/w",))
    with pytest.raises(ValueError, match="matches no leaf of the reference; nearest: ") as raised:
        infer(REFERENCE, CANDIDATE, [rule])
    assert pattern in str(raised.value) and nearest in str(raised.value)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            Rule(reference=("up/kernel",), candidate=("up/v",)),
            "the candidate has no leaf up/v; nearest: in the reference up/kernel float32[3, 3]; "
            "in the candidate up/w float32[3, 3]",
        ),
        (Rule(reference=("(.*)/kernel",), candidate=(r"\1/W",)), "the candidate has no leaf up/W"),
        (
            Rule(reference=("up/kernel", "gate/kernel"), candidate=("up/w",), transform=Split(0, (1, 2))),
            "the reference has no leaf gate/kernel",
        ),
    ],
)
def test_a_rule_whose_partners_are_none_is_no_rule(rule, words):
    with pytest.raises(ValueError, match=r"weight rule .*: it pairs up/kernel, but ") as raised:
        infer(REFERENCE, CANDIDATE, [rule])
    assert words in str(raised.value)


def test_a_rule_that_pairs_a_parameter_with_another_leaf_is_no_rule():
    candidate = {**CANDIDATE, "out/w": dataclasses.replace(leaf("out/w", (3, 3)), role=Role.STATE)}
    rules = [Rule(reference=(f"{name}/kernel",), candidate=(f"{name}/w",)) for name in ("up", "out")]
    with pytest.raises(MapError, match="it pairs out/kernel of role params and out/w of role state"):
        infer(REFERENCE, candidate, rules)


def test_leaves_that_are_left_over_come_with_the_rule_that_missed_them():
    candidate = {**CANDIDATE, "out/w": leaf("out/w", (9, 1))}
    rule = Rule(reference=("(.*)/kernel",), candidate=(r"\1/weight",))
    with pytest.raises(
        MapError, match="it pairs up/kernel, but the candidate has no leaf up/weight"
    ) as raised:
        infer(REFERENCE, candidate, [rule])
    assert "add the parameter, or a weight rule" not in str(raised.value)


@pytest.mark.parametrize(
    "rules",
    [
        [Rule(reference=("(.*)/kernel",), candidate=(r"\1/w",))],
        [Rule(reference=("(.*)/(kernel|bias)",), candidate=(r"\1/w",))],
        [
            Rule(reference=("up/kernel",), candidate=("up/w",)),
            Rule(reference=("(.*)/kernel",), candidate=(r"\1/w",)),
        ],
        [
            Rule(reference=("(.*)/kernel",), candidate=(r"\1/w",)),
            Rule(reference=("up/.*",), candidate=("up/w",)),
        ],
    ],
    ids=["all", "either", "first one, then the rest", "the rest is taken"],
)
def test_a_rule_whose_leaves_earlier_rules_took_is_no_mistake(rules):
    weights = infer(REFERENCE, CANDIDATE, rules)
    assert {entry.matched_by for entry in weights.entries} == {"rule"}


def test_a_rule_may_name_the_containers_of_leaves():
    sides = (
        {f"params/{name}": leaf(f"params/{name}", (3, 3)) for name in each} for each in (REFERENCE, CANDIDATE)
    )
    rules = [
        Rule(reference=("params/up/kernel",), candidate=("params/up/w",)),
        Rule(reference=("out/kernel",), candidate=("out/w",)),
    ]
    assert {entry.matched_by for entry in infer(*sides, rules).entries} == {"rule"}


def test_a_wrong_rule_lists_shapes_and_dtypes_of_both_sides():
    with pytest.raises(ValueError, match="matches no leaf of the reference") as raised:
        infer(REFERENCE, CANDIDATE, [Rule(reference=("up/kernal",), candidate=("up/w",))])
    text = str(raised.value)
    assert (
        "in the reference up/kernel float32[3, 3]" in text and "in the candidate up/w float32[3, 3]" in text
    )


def uses_of(pairs):
    """Returns the uses of one program in which the leaves of each pair are used equally."""
    left, right = ({path: str(at) for at, path in enumerate(paths)} for paths in zip(*pairs, strict=True))
    return {"forward": (left, right)}


def sides_of(pairs):
    return tuple({path: leaf(path, (3,)) for path in paths} for paths in zip(*pairs, strict=True))


@pytest.mark.parametrize(
    ("left", "right"),
    [("layer_{}/pre_norm/scale", "layers/{}/PreNorm/scale"), ("block{}/ü", "blocks/{}/ü")],
)
def test_names_of_equal_words_beat_an_equal_use(left, right):
    right_pairs = [(left.format(at), right.format(at)) for at in range(2)]
    crossed = uses_of([(right_pairs[0][0], right_pairs[1][1]), (right_pairs[1][0], right_pairs[0][1])])
    weights = infer(*sides_of(right_pairs), programs=Programs(use=lambda: crossed))
    assert {(entry.reference[0], entry.candidate[0]) for entry in weights.entries} == {*right_pairs}
    assert weights.guessed == []


def test_an_equal_use_does_not_move_a_leaf_to_another_layer():
    pairs = [
        (f"layer_{at}/{one}", f"blk/{at}/{other}")
        for at in range(2)
        for one, other in (("a", "x"), ("b", "y"))
    ]
    crossed = [(pairs[at][0], pairs[other][1]) for at, other in ((0, 3), (1, 1), (2, 2), (3, 0))]
    weights = infer(*sides_of(pairs), programs=Programs(use=lambda: uses_of(crossed)))
    for entry in weights.entries:
        assert entry.reference[0].split("/")[0][-1] == entry.candidate[0].split("/")[1]


def test_names_in_another_script_are_words():
    sides = {"ln/ö": leaf("ln/ö", (3,))}, {"ln/ü": leaf("ln/ü", (3,))}
    (entry,) = infer(*sides).entries
    assert entry.matched_by != "words of the name"
