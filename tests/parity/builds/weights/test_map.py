"""The weight map: total, one-to-one, never a silent swap, and arrays converted there and back."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.builds.tree import Leaf, Role
from parity.builds.weights.inference import infer
from parity.builds.weights.map import MapError, Rule, normalise
from parity.builds.weights.modules import Programs
from parity.builds.weights.transforms import Concat, Identity, Permute, Reshape, Split, Stack, Unstack

few = settings(max_examples=120, deadline=None, database=None, derandomize=True)

PARTS = ("attention/query/kernel", "attention/key/kernel", "mlp/gate/kernel", "mlp/up/kernel", "norm/scale")
OUTER = ("embedding/table", "final_norm/scale", "head/kernel", "head/bias")
SHAPES = ((5, 7), (7, 5), (5, 5), (7,), (5,), (2, 3, 5), ())
MU_NU = ("mu", "nu")
MOMENTS = ("0/mu", "0/nu", "1/0/mu", "1/2/trace", "inner_state/0/nu")


def leaf(path, shape, role=Role.PARAMS, axes=None, dtype="float32"):
    return Leaf(path=path, shape=tuple(shape), dtype=dtype, role=role, logical_axes=axes)


def leaves(*items):
    return {item.path: item for item in items}


def optimizer(path, shape):
    return leaf(path, shape, Role.OPTIMIZER)


def trained(*names):
    """Both sides: parameters of these names and shapes, and their Adam moments."""
    return [
        leaves(
            *(leaf(f"{holder}/{path}", shape) for path, shape in shapes.items()),
            *(optimizer(f"opt_state/0/{m}/{path}", shape) for m in MU_NU for path, shape in shapes.items()),
        )
        for holder, shapes in zip(("params", "model"), names, strict=True)
    ]


def pairs(weights):
    return {entry.reference: entry.candidate for entry in weights.entries}


def by_reference(weights):
    return {entry.reference[0]: entry for entry in weights.entries}


def random_state(side):
    """Host arrays of all leaves, every entry different, in the leaf's dtype."""
    rng = np.random.default_rng(0)
    return {
        path: rng.integers(0, 2**16, item.shape, np.uint16).view(ml_dtypes.bfloat16)
        if item.dtype == "bfloat16"
        else np.asarray(rng.standard_normal(item.shape), item.dtype)
        for path, item in side.items()
    }


def assert_total(weights, reference, candidate):
    for at, side in (("reference", reference), ("candidate", candidate)):
        paths = [path for entry in weights.entries for path in getattr(entry, at)]
        assert sorted(paths) == sorted(side)


def assert_there_and_back(weights, reference, candidate):
    for there, back, side, other in (
        (weights.to_candidate, weights.to_reference, reference, candidate),
        (weights.to_reference, weights.to_candidate, candidate, reference),
    ):
        state = random_state(side)
        carried = there(state)
        assert {path: (x.shape, str(x.dtype)) for path, x in carried.items()} == {
            path: (item.shape, item.dtype) for path, item in other.items()
        }
        again = back(carried)
        assert {path: x.tobytes() for path, x in again.items()} == {
            path: x.tobytes() for path, x in state.items()
        }


@st.composite
def models(draw, shapes=SHAPES):
    """Leaf names and shapes; layers have equal shapes, as in a real model."""
    number = draw(st.integers(1, 4))
    parts = {
        part: draw(st.sampled_from(shapes)) for part in draw(st.sets(st.sampled_from(PARTS), min_size=1))
    }
    outer = {name: draw(st.sampled_from(shapes)) for name in draw(st.sets(st.sampled_from(OUTER)))}
    return number, parts, outer


def per_layer(model, layer, holder, moment_holder, moments, dtype="float32"):
    """The leaves of one side: ``layer`` is ``layers_{}`` or ``layers/{}``."""
    number, parts, outer = model
    names = {
        f"{layer.format(i)}/{part}": shape for i in range(number) for part, shape in parts.items()
    } | outer
    side = [leaf(f"{holder}{name}", shape, dtype=dtype) for name, shape in names.items()]
    side += [
        optimizer(f"{moment_holder}{moment}/{name}", shape)
        for moment in moments
        for name, shape in names.items()
    ]
    return leaves(*side, optimizer(f"{moment_holder}0/count", ()), leaf("key", (), Role.RNG, dtype="uint32"))


@pytest.mark.long
@few
@given(
    models(),
    st.sampled_from(("params/", "", "params/params/", "model/params/")),
    st.sampled_from(("opt_state/", "optimizer/opt_state/", "optimizer/")),
    st.sets(st.sampled_from(MOMENTS)),
    st.sampled_from(("float32", "bfloat16")),
    st.randoms(use_true_random=False),
)
def test_names_pair_all_leaves_in_any_container(model, holder, moment_holder, moments, dtype, random):
    """Shapes coincide all the time here, and the candidate lists its leaves in any order."""
    reference = per_layer(model, "layers_{}", "params/", "opt_state/", moments, dtype)
    candidate = per_layer(model, "layers/{}", holder, moment_holder, moments, dtype)
    shuffled = list(candidate.items())
    random.shuffle(shuffled)
    weights = infer(reference, dict(shuffled))
    assert_total(weights, reference, candidate)
    wanted = {(a,): (b,) for a, b in zip(reference, candidate, strict=True)}
    assert pairs(weights) == wanted
    assert weights.is_identity
    assert_there_and_back(weights, reference, candidate)


def stacked(model, axis_of, moments, holder="model/"):
    """The leaves with layers stacked at an axis per leaf, and a name for it."""
    number, parts, outer = model
    names = {
        f"layers/{part}": (shape[: axis_of[part]] + (number,) + shape[axis_of[part] :])
        for part, shape in parts.items()
    } | outer
    side = [leaf(f"{holder}{name}", shape) for name, shape in names.items()]
    side += [
        optimizer(f"opt_state/{moment}/{name}", shape) for moment in moments for name, shape in names.items()
    ]
    return leaves(*side, optimizer("opt_state/0/count", ()), leaf("key", (), Role.RNG, dtype="uint32"))


@pytest.mark.long
@few
@given(models(shapes=((11, 13), (13, 11), (11,), (13, 17, 11), ())), st.data())
def test_stacked_layers_are_paired_with_single_ones_at_any_axis(model, data):
    """No size equals the number of layers, so shapes alone determine the axis."""
    number, parts, _ = model
    moments = data.draw(st.sets(st.sampled_from(MOMENTS)))
    axis_of = {part: data.draw(st.integers(0, len(shape))) for part, shape in parts.items()}
    single = per_layer(model, "layers_{}", "params/", "opt_state/", moments)
    whole = stacked(model, axis_of, moments)
    for reference, candidate, kind in ((single, whole, Stack), (whole, single, Unstack)):
        weights = infer(reference, candidate)
        assert_total(weights, reference, candidate)
        assert_there_and_back(weights, reference, candidate)
        for entry in weights.entries:
            many = entry.reference if kind is Stack else entry.candidate
            if "layers" not in many[0]:
                assert entry.transform == Identity()
                continue
            part = next(part for part in parts if many[0].endswith(part))
            assert entry.transform == kind(axis_of[part], number)
            assert [path.split("layers_")[1] for path in many] == [f"{i}/{part}" for i in range(number)]


@pytest.mark.long
@few
@given(models(), st.booleans(), st.data())
def test_removing_any_leaf_lists_the_leftovers_of_both_sides(model, from_reference, data):
    """Names give every other leaf its partner, so exactly this leaf remains."""
    sides = [
        per_layer(model, "layers_{}", "params/", "opt_state/", ["0/mu"]),
        per_layer(model, "layers/{}", "model/", "optimizer/opt_state/", ["0/mu"]),
    ]
    counted = [place for place, item in enumerate(sides[0].values()) if item.role is not Role.RNG]
    at = data.draw(st.sampled_from(counted))
    gone, widow = (list(side)[at] for side in (sides if from_reference else sides[::-1]))
    del sides[0 if from_reference else 1][gone]
    with pytest.raises(MapError) as caught:
        infer(*sides)
    left = {item.path for item in (*caught.value.reference, *caught.value.candidate)}
    assert widow in left and widow in str(caught.value)
    assert left == {widow}
    assert f"{'candidate' if not caught.value.candidate else 'reference'} none" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("params/layers_3/kernel", "layers/3/kernel"),
        ("model/layers/3/kernel", "layers/3/kernel"),
        ("optimizer/opt_state/0/mu/layers/3/kernel", "0/mu/layers/3/kernel"),
        ("opt_state/1/0/nu/Dense_12/bias", "1/0/nu/Dense/12/bias"),
        ("params/params/x", "x"),
        ("params", "params"),
        ("model/params", "params"),
        ("critic/params/layers_3/kernel", "critic/layers/3/kernel"),
        ("batch_stats/norm/mean", "batch_stats/norm/mean"),
        ("params/wi_0_gate/kernel", "wi_0_gate/kernel"),
    ],
)
def test_normalised_names(path, name):
    assert normalise(path) == name


@pytest.mark.parametrize(
    "paths",
    [("params/layers_0/w", "params/layers/0/w"), ("params/w", "model/w")],
    ids=["layer spelled both ways", "two holders"],
)
@pytest.mark.parametrize("side", [0, 1])
def test_clashing_names_raise_and_are_listed(paths, side):
    clashing, plain = leaves(*(leaf(path, (2,)) for path in paths)), leaves(leaf("params/v", (2,)))
    with pytest.raises(ValueError, match="without their holders") as caught:
        infer(*((clashing, plain) if side == 0 else (plain, clashing)))
    assert all(path in str(caught.value) for path in paths)


def test_equal_shapes_follow_their_names_also_when_renamed():
    reference = leaves(leaf("params/mlp/gate/kernel", (5, 7)), leaf("params/mlp/up/kernel", (5, 7)))
    candidate = leaves(leaf("model/ffn/up_proj", (5, 7)), leaf("model/ffn/gate_proj", (5, 7)))
    weights = infer(reference, candidate)
    assert pairs(weights) == {
        ("params/mlp/gate/kernel",): ("model/ffn/gate_proj",),
        ("params/mlp/up/kernel",): ("model/ffn/up_proj",),
    }
    assert {entry.matched_by for entry in weights.entries} == {"related name"}


def test_a_counter_is_matched_regardless_of_its_integer_dtype():
    """`nnx.Optimizer` counts steps in uint32, Linen's `TrainState` in int32."""
    steps = (
        leaf("step", (), Role.OPTIMIZER, dtype="int32"),
        leaf("opt/step", (), Role.OPTIMIZER, dtype="uint32"),
    )
    assert pairs(infer(*map(leaves, steps))) == {("step",): ("opt/step",)}
    floats = (
        dataclasses.replace(one, dtype=dtype)
        for one, dtype in zip(steps, ("float32", "bfloat16"), strict=True)
    )
    with pytest.raises(MapError):
        infer(*map(leaves, floats))


def test_the_only_leaf_of_its_shape_is_matched_by_shape():
    weights = infer(leaves(leaf("params/a", (5, 7))), leaves(leaf("model/zzz", (5, 7))))
    assert weights.entries[0].matched_by == "shape"


def test_names_that_exist_on_both_sides_are_never_given_to_each_other():
    """`a` and `b` are both transposed; by shape alone each would get the other's numbers."""
    reference = leaves(leaf("params/a", (5, 7)), leaf("params/b", (7, 5)))
    candidate = leaves(leaf("model/a", (7, 5)), leaf("model/b", (5, 7)))
    with pytest.raises(MapError) as caught:
        infer(reference, candidate)
    assert len(caught.value.reference) == len(caught.value.candidate) == 2
    for part in ("params/a float32[5, 7]", "model/a float32[7, 5]", "weight rule"):
        assert part in str(caught.value)


def test_leaves_of_different_roles_are_never_paired():
    """History B4: a routing bias that one side declares a parameter."""
    reference = leaves(leaf("params/bias", (5,), Role.STATE))
    with pytest.raises(MapError):
        infer(reference, leaves(leaf("params/bias", (5,), Role.PARAMS)))


def test_a_dtype_that_differs_keeps_its_name_match_but_not_a_shape_match():
    """History N1: the tree channel then names the dtypes; a renamed leaf must not slip through."""
    reference, half = leaves(leaf("params/a", (5,))), leaf("model/a", (5,), dtype="bfloat16")
    assert pairs(infer(reference, leaves(half))) == {("params/a",): ("model/a",)}
    with pytest.raises(MapError):
        infer(reference, leaves(dataclasses.replace(half, path="model/c")))


@pytest.mark.parametrize("prefixes", [("opt_state/0", "opt_state/1/0"), ("opt_state/2/1", "optimizer/0")])
def test_moments_under_different_chains_are_not_swapped(prefixes):
    names = [f"{moment}/layers/{i}/{part}" for moment in ("mu", "nu") for i in range(3) for part in PARTS]
    sides = [leaves(*(optimizer(f"{prefix}/{name}", (5, 5)) for name in names)) for prefix in prefixes]
    weights = infer(sides[0], dict(reversed(sides[1].items())))
    assert pairs(weights) == {(f"{prefixes[0]}/{name}",): (f"{prefixes[1]}/{name}",) for name in names}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_named_axis_decides_if_sizes_do_not(axis):
    names = ["embed", "mlp"]
    whole = leaf("params/layers/w", (2, 2, 2), axes=(*names[:axis], "layers", *names[axis:]))
    singles = [leaf(f"model/layers/{i}/w", (2, 2), axes=("embed", "mlp")) for i in range(2)]
    assert infer(leaves(whole), leaves(*singles)).entries[0].transform == Unstack(axis, 2)
    assert infer(leaves(*singles), leaves(whole)).entries[0].transform == Stack(axis, 2)


UNROLLED = [
    *(
        leaf(f"params/block_{i}/{name}", shape)
        for i in range(2)
        for name, shape in (("Norm_0/scale", (6,)), ("Norm_1/scale", (6,)), ("mlp/Dense_0/kernel", (6, 9)))
    ),
    leaf("params/Norm_0/scale", (6,)),
]
RENAMED = [
    leaf("model/blocks/before/scale", (2, 6)),
    leaf("model/blocks/after/scale", (2, 6)),
    leaf("model/blocks/mlp/up/kernel", (6, 2, 9)),
    leaf("model/final/scale", (6,)),
]


@pytest.mark.parametrize("swapped", [False, True])
def test_layers_are_paired_with_a_stack_of_other_names(swapped):
    """Modules of one kind are paired in the order of use, and moments like their parameters."""

    def both(items, holder):
        moments = [
            leaf(f"{holder}/0/mu/{item.path.partition('/')[2]}", item.shape, Role.OPTIMIZER) for item in items
        ]
        return leaves(*items, *moments)

    reference, candidate = both(UNROLLED, "opt_state"), both(RENAMED, "optimizer")
    used = [{item.path: at for at, item in enumerate(items)} for items in (UNROLLED, RENAMED)]
    sides, kind = ([candidate, reference], Unstack) if swapped else ([reference, candidate], Stack)
    weights = infer(*sides, programs=Programs(order=lambda: (used[swapped], used[not swapped])))
    assert_total(weights, *sides)
    assert_there_and_back(weights, *sides)
    many, one = ("candidate", "reference") if swapped else ("reference", "candidate")
    found = {getattr(entry, one)[0]: (getattr(entry, many), entry.transform) for entry in weights.entries}
    for holders in (("params", "model"), ("opt_state/0/mu", "optimizer/0/mu")):
        for name, stack, axis in (
            ("Norm_0/scale", "before/scale", 0),
            ("Norm_1/scale", "after/scale", 0),
            ("mlp/Dense_0/kernel", "mlp/up/kernel", 1),
        ):
            members = tuple(f"{holders[0]}/block_{i}/{name}" for i in range(2))
            assert found[f"{holders[1]}/blocks/{stack}"] == (members, kind(axis, 2))
    guessed = {path for entry in weights.guessed for path in getattr(entry, one)}
    assert guessed == {
        "model/blocks/before/scale",
        "model/blocks/after/scale",
    }  # two layers, and two norms in each


def test_layers_whose_stack_has_no_partner_are_listed_one_by_one():
    without_one = [item for item in RENAMED if "after" not in item.path]
    with pytest.raises(MapError) as caught:
        infer(leaves(*UNROLLED), leaves(*without_one))
    assert [item.path for item in caught.value.reference] == [
        f"params/block_{i}/Norm_0/scale" for i in range(2)
    ]
    assert not caught.value.candidate


def test_layers_are_not_paired_with_a_stack_whose_axis_sizes_leave_open():
    with pytest.raises(MapError) as caught:
        infer(
            leaves(*UNROLLED[:1], *UNROLLED[3:4]),
            leaves(leaf("model/a/w", (2, 6)), leaf("model/b/w", (6, 2))),
        )
    assert len(caught.value.reference) == len(caught.value.candidate) == 2


def test_an_incomplete_run_of_layers_is_not_a_stack():
    whole = leaves(leaf("params/layers/w", (2, 5)))
    with pytest.raises(MapError) as caught:
        infer(whole, leaves(leaf("model/layers/0/w", (5,)), leaf("model/layers/2/w", (5,))))
    assert len(caught.value.candidate) == 2


RULES = {
    "transpose": (
        {"dense/kernel": (5, 7)},
        {"dense/w": (7, 5)},
        Rule(reference=(r"(dense)/kernel",), candidate=(r"\1/w",), transform=Permute((1, 0))),
    ),
    "transpose a square of the same name": (
        {"dense/kernel": (5, 5)},
        {"dense/kernel": (5, 5)},
        Rule(reference=("dense/kernel",), candidate=("dense/kernel",), transform=Permute((1, 0))),
    ),
    "split a fused qkv": (
        {"layers/0/qkv": (5, 9), "layers/1/qkv": (5, 9)},
        {f"layers/{i}/{name}": (5, size) for i in range(2) for name, size in (("q", 5), ("k", 2), ("v", 2))},
        Rule(
            reference=(r"(layers/.)/qkv",),
            candidate=(r"\1/q", r"\1/k", r"\1/v"),
            transform=Split(1, (5, 2, 2)),
        ),
    ),
    "concat gate and up": (
        {"mlp/gate": (5, 7), "mlp/up": (5, 7)},
        {"mlp/wi": (5, 14)},
        Rule(reference=(r"(mlp)/gate", r"\1/up"), candidate=(r"\1/wi",), transform=Concat(1, (7, 7))),
    ),
    "reshape heads": (
        {"out/kernel": (2, 3, 7)},
        {"out/kernel": (6, 7)},
        Rule(reference=(r"(out/kernel)",), candidate=(r"\1",), transform=Reshape((2, 3, 7), (6, 7))),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_carries_parameters_and_their_moments(name):
    """The rule names parameters only; the moments follow the parameter they belong to."""
    first, second, rule = RULES[name]
    sides = trained(first, second)
    weights = infer(*sides, [rule])
    assert_total(weights, *sides)
    assert_there_and_back(weights, *sides)
    assert {entry.transform for entry in weights.entries} == {rule.transform}
    assert not weights.is_identity
    for entry in weights.entries:
        assert entry.matched_by == ("rule" if entry.role is Role.PARAMS else "parameter it belongs to")
        held = {tuple(path.split("/")[:3]) for path in (*entry.reference, *entry.candidate)}
        assert entry.role is Role.PARAMS or len(held) == 1


def test_rules_come_before_names():
    sides = [leaves(*(leaf(f"{holder}/{name}", (5,)) for name in "ab")) for holder in ("params", "model")]
    swap = [Rule(reference=("a",), candidate=("b",)), Rule(reference=("b",), candidate=("a",))]
    assert pairs(infer(*sides, swap)) == {("params/a",): ("model/b",), ("params/b",): ("model/a",)}


def test_a_rule_may_name_moments_too():
    rule = dataclasses.replace(RULES["transpose"][2], reference=(r"(.*)/kernel",))
    weights = infer(*trained(*RULES["transpose"][:2]), [rule])
    assert {(entry.matched_by, entry.transform) for entry in weights.entries} == {("rule", rule.transform)}


def test_a_rule_whose_partners_are_missing_changes_nothing():
    reference, candidate = leaves(leaf("params/qkv", (5, 9))), leaves(leaf("model/q", (5, 5)))
    rule = Rule(reference=("qkv",), candidate=("q", "k", "v"), transform=Split(1, (5, 2, 2)))
    with pytest.raises(MapError) as caught:
        infer(reference, candidate, [rule])
    assert (len(caught.value.reference), len(caught.value.candidate)) == (1, 1)


def test_the_longest_parameter_name_owns_the_moment():
    """`b/kernel` ends like `kernel`, which is transposed; its moment must not be."""
    sides = trained(*({root: (5, 5), f"b/{root}": (5, 5)} for root in ("kernel", "w")))
    rules = [
        Rule(reference=("kernel",), candidate=("w",), transform=Permute((1, 0))),
        Rule(reference=("b/kernel",), candidate=("b/w",)),
    ]
    found = by_reference(infer(*sides, rules))
    assert found["opt_state/0/mu/b/kernel"].transform == Identity()
    assert found["opt_state/0/mu/kernel"].transform == Permute((1, 0))


def test_moments_of_a_parameter_matched_by_shape_follow_it():
    """Names alone would give the opposite result: the parameters decide."""
    weights = infer(*trained({"w1": (5, 7), "w2": (7, 5)}, {"w2x": (5, 7), "w1x": (7, 5)}))
    for entry in weights.entries:
        assert (entry.reference[0].endswith("w1")) == (entry.candidate[0].endswith("w2x"))
    moments = [entry for entry in weights.entries if entry.role is Role.OPTIMIZER]
    assert {entry.matched_by for entry in moments} == {"parameter it belongs to"}


def test_moments_of_parts_with_their_own_optimizers_follow_their_parameters():
    """``opt_state/D/0/mu/look/kernel`` is of ``params/D/look/kernel``; names and order of use would exchange both."""

    def side(part, names, moment):
        found = [leaf(f"params/{part}/{name}", (3, 3)) for name in names]
        return leaves(
            *found, *(leaf(f"opt_state/{part}/{moment}/{name}", (3, 3), Role.OPTIMIZER) for name in names)
        )

    rules = [
        Rule(reference=(f"D/{name}",), candidate=(f"critic/{other}",))
        for name, other in (("look/kernel", "mix/taps"), ("mix/kernel", "look/taps"))
    ]
    weights = infer(
        side("D", ("look/kernel", "mix/kernel"), "0/mu"),
        side("critic", ("look/taps", "mix/taps"), "mu"),
        rules,
    )
    assert pairs(weights)["opt_state/D/0/mu/look/kernel",] == ("opt_state/critic/mu/mix/taps",)
    moments = [entry for entry in weights.entries if entry.role is Role.OPTIMIZER]
    assert {entry.matched_by for entry in moments} == {"parameter it belongs to"}


def test_factored_moments_do_not_take_their_parameters_transform():
    """Adafactor keeps a row and a column per matrix; a transposed parameter does not determine their assignment."""
    sides = [
        leaves(leaf(f"{holder}/a/{name}", shape), optimizer(f"opt_state/0/v_row/a/{name}", (5,)))
        for holder, name, shape in (("params", "kernel", (5, 7)), ("model", "w", (7, 5)))
    ]
    rule = Rule(reference=("a/kernel",), candidate=("a/w",), transform=Permute((1, 0)))
    moment = by_reference(infer(*sides, [rule]))["opt_state/0/v_row/a/kernel"]
    assert (moment.transform, moment.matched_by) == (Identity(), "shape")


def test_part_of_a_state_is_carried_in_whole_entries_only():
    whole = leaves(leaf("params/layers/w", (2, 5)), leaf("params/b", (5,)))
    single = leaves(leaf("model/layers/0/w", (5,)), leaf("model/layers/1/w", (5,)), leaf("model/b", (5,)))
    weights = infer(whole, single)
    state = random_state(single)
    assert set(weights.to_reference({"model/b": state["model/b"]})) == {"params/b"}
    assert weights.to_reference({"model/layers/0/w": state["model/layers/0/w"]}) == {}
    assert weights.to_candidate({}) == {}


def test_a_moment_of_another_shape_follows_its_parameter():
    """Such as the rows of Adafactor, whose names sort differently on both sides."""

    def side(names):
        rows = (optimizer(f"opt_state/0/v_row/{name}", (5,)) for name in names)
        return leaves(*(leaf(name, (5, 2 + at)) for at, name in enumerate(names)), *rows)

    found = pairs(infer(side(["a/alpha", "a/omega"]), side(["b/zulu", "b/echo"])))
    assert found["opt_state/0/v_row/a/alpha",] == ("opt_state/0/v_row/b/zulu",)
    assert found["opt_state/0/v_row/a/omega",] == ("opt_state/0/v_row/b/echo",)
