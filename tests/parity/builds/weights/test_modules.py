"""Leaves of one module stay together; moments and statistics follow their parameters; RNG state may stay alone."""

import re

import jax
import jax.numpy as jnp
import pytest

from parity.builds.tree import Leaf, Role
from parity.builds.weights.inference import infer
from parity.builds.weights.map import FOLLOWS, MapError, Rule
from parity.builds.weights.modules import Programs, pair_nearest
from parity.builds.weights.transforms import Concat, Split
from parity.ir.jaxprs import first_uses


def leaves(text, role=Role.PARAMS, dtype="float32"):
    """``"Dense_0/kernel 3x5, key"`` as leaves; a name without sizes is a scalar."""
    found = {}
    for word in text.split(", "):
        path, _, sizes = word.partition(" ")
        shape = tuple(int(size) for size in sizes.split("x")) if sizes else ()
        found[path] = Leaf(path=path, shape=shape, dtype=dtype, role=role)
    return found


def pairs(weights):
    return {entry.reference[0]: entry.candidate[0] for entry in weights.entries}


def dense(*names):
    return leaves(", ".join(f"{name}/kernel 5x5, {name}/bias 5" for name in names))


def order(*sides):
    """Order of use of each leaf in the programs: the order of these names."""
    return tuple({path: rank for rank, path in enumerate(side)} for side in sides)


def test_automatic_names_are_paired_as_whole_modules_in_the_order_of_use():
    reference = dense("params/Dense_0", "params/Dense_1", "params/Dense_2")
    candidate = dense("model/dec", "model/enc", "model/mid")
    used = order(
        [f"params/Dense_{i}/{leaf}" for i in (0, 1, 2) for leaf in ("kernel", "bias")],
        [f"model/{name}/{leaf}" for name in ("enc", "mid", "dec") for leaf in ("bias", "kernel")],
    )
    weights = infer(reference, candidate, programs=Programs(order=lambda: used))
    names = ("enc", "mid", "dec")
    assert pairs(weights) == {
        f"params/Dense_{i}/{leaf}": f"model/{names[i]}/{leaf}"
        for i in range(3)
        for leaf in ("kernel", "bias")
    }
    assert {entry.matched_by for entry in weights.entries} == {"order of use"}


def test_a_list_and_modules_that_are_numbered_otherwise_are_paired_in_the_order_of_use():
    names = ("blocks/0/norm", "blocks/1/norm", "last")
    reference = leaves(", ".join(f"params/norms_{i}/scale 5" for i in range(3)))
    candidate = leaves(", ".join(f"model/{name}/scale 5" for name in names))
    weights = infer(
        reference, candidate, programs=Programs(order=lambda: order(list(reference), list(candidate)))
    )
    assert pairs(weights) == dict(zip(reference, candidate, strict=True))
    assert weights.guessed == list(weights.entries)  # a program may use the last norm in a block


def test_branches_in_another_order_keep_the_norm_behind_its_convolution():
    reference = leaves("params/a/kernel 3x3, params/b/kernel 1x3, params/one/scale 3, params/two/scale 3")
    candidate = leaves("model/c/kernel 3x3, model/d/kernel 1x3, model/x/scale 3, model/y/scale 3")
    used = order(
        ["params/a/kernel", "params/one/scale", "params/b/kernel", "params/two/scale"],
        ["model/d/kernel", "model/x/scale", "model/c/kernel", "model/y/scale"],
    )
    found = pairs(infer(reference, candidate, programs=Programs(order=lambda: used)))
    assert found["params/one/scale"] == "model/y/scale" and found["params/two/scale"] == "model/x/scale"


def test_a_list_that_counts_from_one_is_paired_in_the_order_of_use_for_sure():
    reference = leaves(", ".join(f"params/norms_{i}/scale 5" for i in range(3)))
    candidate = leaves(", ".join(f"model/norm_{i}/scale 5" for i in (1, 2, 3)))
    weights = infer(
        reference, candidate, programs=Programs(order=lambda: order(list(reference), list(candidate)))
    )
    assert pairs(weights) == dict(zip(reference, candidate, strict=True)) and not weights.guessed


def test_numbers_at_other_places_of_the_name_are_the_same_numbers():
    """A block that uses its second norm first is a mistake of the block, not of the map."""
    names = [(layer, norm) for norm in (1, 2) for layer in (0, 1)]
    reference = leaves(", ".join(f"params/ln{norm}_{layer}/scale 5" for layer, norm in names))
    candidate = leaves(", ".join(f"model/blocks/{layer}/ln{norm}/scale 5" for layer, norm in names))
    exchanged = [f"model/blocks/{layer}/ln{norm}/scale" for layer in (0, 1) for norm in (2, 1)]
    used = [f"params/ln{norm}_{layer}/scale" for layer in (0, 1) for norm in (1, 2)]
    weights = infer(reference, candidate, programs=Programs(order=lambda: order(used, exchanged)))
    assert pairs(weights) == dict(zip(reference, candidate, strict=True))


def test_a_leaf_that_is_paired_takes_the_rest_of_its_module_along():
    """Only the kernels differ in use; the biases follow them, regardless of their names."""
    reference = dense("params/Dense_0", "params/Dense_1")
    candidate = dense("model/a", "model/b")
    use = (
        {"params/Dense_0/kernel": "first", "params/Dense_1/kernel": "second"},
        {"model/b/kernel": "first", "model/a/kernel": "second"},
    )
    weights = infer(reference, candidate, programs=Programs(use=lambda: {"forward": use}))
    assert pairs(weights)["params/Dense_0/bias"] == "model/b/bias"
    assert pairs(weights)["params/Dense_1/bias"] == "model/a/bias"


def test_custom_names_are_paired_by_nearest_name():
    reference, candidate = dense("params/encoder", "params/decoder"), dense("model/dec", "model/enc")
    found = pairs(infer(reference, candidate, programs=Programs(order=lambda: 1 / 0)))
    assert found["params/encoder/bias"] == "model/enc/bias"
    assert found["params/decoder/kernel"] == "model/dec/kernel"


def test_eighteen_projections_of_one_size_are_paired_by_layer_and_name():
    kinds = {"enc": ["self_att"], "dec": ["self_att", "cross_att"]}
    names = [
        f"{kind}/{layer}/{attention}/{each}"
        for kind, attentions in kinds.items()
        for layer in range(2)
        for attention in attentions
        for each in "qkv"
    ]
    partner = {name: re.sub(r"(self_)?(att|cross)(_att)?/", r"\2/branch/", name) for name in names}
    assert dict(pair_nearest(names, list(partner.values()))) == partner


def test_statistics_are_next_to_the_parameters_of_their_module():
    norm = "{0}/scale 5, {0}/bias 5"
    reference = leaves(", ".join(norm.format(f"params/BatchNorm_{i}") for i in (0, 1)))
    reference |= leaves(
        ", ".join(f"batch_stats/BatchNorm_{i}/{leaf} 5" for i in (0, 1) for leaf in ("mean", "var")),
        Role.STATE,
    )
    candidate = leaves(", ".join(norm.format(f"model/{name}") for name in ("last", "first")))
    candidate |= leaves(
        ", ".join(f"model/{name}/{leaf} 5" for name in ("last", "first") for leaf in ("mean", "var")),
        Role.STATE,
    )
    used = order(
        ["params/BatchNorm_0/scale", "params/BatchNorm_1/scale"], ["model/first/scale", "model/last/scale"]
    )
    found = pairs(infer(reference, candidate, programs=Programs(order=lambda: used)))
    assert found["batch_stats/BatchNorm_0/mean"] == "model/first/mean"
    assert found["batch_stats/BatchNorm_1/var"] == "model/last/var"


def test_moments_follow_their_parameters_in_any_container():
    """As `TrainState` stores them, with `params` in the middle, against `nnx.Optimizer`."""
    reference = dense("params/params/Dense_0", "params/params/Dense_1")
    candidate = dense("model/up", "model/down")
    for moment in ("mu", "nu"):
        reference |= leaves(
            ", ".join(f"opt_state/0/{moment}/params/Dense_{i}/kernel 5x5" for i in (0, 1)), Role.OPTIMIZER
        )
        candidate |= leaves(
            ", ".join(f"optimizer/opt_state/1/0/{moment}/{name}/kernel 5x5" for name in ("up", "down")),
            Role.OPTIMIZER,
        )
    used = order(
        ["params/params/Dense_0/kernel", "params/params/Dense_1/kernel"],
        ["model/up/kernel", "model/down/kernel"],
    )
    found = pairs(infer(reference, candidate, programs=Programs(order=lambda: used)))
    assert found["opt_state/0/mu/params/Dense_1/kernel"] == "optimizer/opt_state/1/0/mu/down/kernel"
    assert found["opt_state/0/nu/params/Dense_0/kernel"] == "optimizer/opt_state/1/0/nu/up/kernel"


def test_rules_may_write_numbered_names_like_the_model():
    reference = leaves("params/mlp/wi_0/kernel 3x5, params/mlp/wi_1/kernel 3x5")
    candidate = leaves("model/mlp/up/kernel 3x5, model/mlp/gate/kernel 3x5")
    rules = [
        Rule(reference=(r"(.*)/wi_0/kernel",), candidate=(r"\1/gate/kernel",)),
        Rule(reference=(r"(.*)/wi/1/kernel",), candidate=(r"\1/up/kernel",)),
    ]
    found = pairs(infer(reference, candidate, rules))
    assert found["params/mlp/wi_0/kernel"] == "model/mlp/gate/kernel"
    split = Rule(
        reference=(r"(.*)/wi/kernel",),
        candidate=(r"\1/wi_0/kernel", r"\1/wi_1/kernel"),
        transform=Split(axis=1, sizes=(5, 5)),
    )
    (entry,) = infer(leaves("params/mlp/wi/kernel 3x10"), reference, [split]).entries
    assert entry.candidate == ("params/mlp/wi_0/kernel", "params/mlp/wi_1/kernel")


def test_a_rule_pairs_leaves_of_one_role():
    """`(.*)` also matches the path prefix of a moment."""
    reference = leaves("opt_state/0/mu/cell/hi/kernel 5x5", Role.OPTIMIZER) | leaves(
        "params/cell/hi/kernel 5x5"
    )
    candidate = leaves("model/dense/kernel 5x5") | leaves("optimizer/0/mu/dense/kernel 5x5", Role.OPTIMIZER)
    rule = Rule(reference=(r"(.*)/hi/kernel",), candidate=("dense/kernel",))
    found = pairs(infer(reference, candidate, [rule]))
    assert found["params/cell/hi/kernel"] == "model/dense/kernel"
    assert found["opt_state/0/mu/cell/hi/kernel"] == "optimizer/0/mu/dense/kernel"


def test_random_state_of_one_side_stays_alone():
    reference = leaves("params/w 3x5") | leaves("dropout", Role.RNG, "key<fry>")
    candidate = (
        leaves("model/w 3x5")
        | leaves("model/drop/rngs/count 7", Role.RNG, "uint32")
        | leaves("model/drop/rngs/key 7", Role.RNG, "key<fry>")
    )
    weights = infer(reference, candidate)
    assert pairs(weights) == {"params/w": "model/w"}
    assert weights.alone == (("dropout",), ("model/drop/rngs/count", "model/drop/rngs/key"))


def test_first_uses_include_calls_and_loops():
    def step(a, b, c, unused):
        x = jax.checkpoint(lambda c: jnp.sin(c))(c)
        x, _ = jax.lax.scan(lambda x, _: (x * b + a, None), x, None, length=3)
        return x + unused * 0 if False else x

    places = first_uses(jax.make_jaxpr(step)(1.0, 2.0, 3.0, 4.0))
    assert sorted(places, key=lambda number: places[number]) == [2, 1, 0]
    assert 3 not in places


def test_an_average_in_variables_of_the_parameters_type_is_no_parameter():
    """As `nnx.EMA` stores it: its leaves are paired with an average of other names, not with parameters."""
    averages = leaves("ema/Dense_0/kernel 5x5, ema/Dense_1/kernel 5x5", Role.STATE)
    reference = leaves("params/Dense_0/kernel 5x5, params/Dense_1/kernel 5x5") | averages
    names = ("ema/params/up", "ema/params/down", "model/up", "model/down")
    candidate = leaves(", ".join(f"{name}/kernel 5x5" for name in names))
    used = order(["params/Dense_0/kernel", "params/Dense_1/kernel"], ["model/up/kernel", "model/down/kernel"])
    assert pairs(infer(reference, candidate, programs=Programs(order=lambda: used))) == {
        "params/Dense_0/kernel": "model/up/kernel",
        "params/Dense_1/kernel": "model/down/kernel",
        "ema/Dense_0/kernel": "ema/params/up/kernel",
        "ema/Dense_1/kernel": "ema/params/down/kernel",
    }


def test_an_average_is_no_parameter_if_a_parameter_has_another_size():
    """Else both it and the parameter could be the partner, and no leaf would be paired."""
    reference = leaves("params/up/kernel 5x5, params/down/kernel 2x3") | leaves(
        "ema/up/kernel 5x5, ema/down/kernel 2x3", Role.STATE
    )
    candidate = leaves(
        "params/up/kernel 5x5, params/down/kernel 1x3, average/up/kernel 5x5, average/down/kernel 1x3"
    )
    with pytest.raises(MapError) as caught:
        infer(reference, candidate)
    assert {leaf.path for leaf in caught.value.reference} == {"params/down/kernel", "ema/down/kernel"}


def test_an_average_of_joined_leaves_is_no_parameter():
    """Though the sides hold other numbers of parameters."""
    reference = leaves("params/gate 5x4, params/value 5x4") | leaves(
        "ema/gate 5x4, ema/value 5x4", Role.STATE
    )
    candidate = leaves("params/both 5x8, average/both 5x8")
    holders = {"params": "params", "ema": "average"}
    rules = [
        Rule(
            reference=(f"{holder}/gate", f"{holder}/value"),
            candidate=(f"{other}/both",),
            transform=Concat(axis=1, sizes=(4, 4)),
        )
        for holder, other in holders.items()
    ]
    entries = infer(reference, candidate, rules).entries
    assert {entry.candidate: entry.role for entry in entries} == {
        ("params/both",): Role.PARAMS,
        ("average/both",): Role.STATE,
    }


def test_the_state_of_an_optimizer_pairs_whatever_its_role_is():
    """As Optax's state against one in a Variable, or in an own class."""
    reference = leaves("params/a 5x4, params/b 5x4") | leaves(
        "tx/0/mu/a 5x4, tx/0/mu/b 5x4, tx/0/count 1", Role.OPTIMIZER
    )
    candidate = leaves("params/a 5x4, params/b 5x4") | leaves(
        "mom/mu/a 5x4, mom/mu/b 5x4, mom/count 1", Role.STATE
    )
    found = pairs(infer(reference, candidate))
    assert found["tx/0/mu/a"] == "mom/mu/a" and found["tx/0/count"] == "mom/count"


def of_flow_and_slow(role):
    """Leaves of a model and of its average, whose names differ from those of the other side."""
    params = leaves("flow/0/below 5x5, flow/0/above 5x5, flow/1/below 5x5, flow/1/above 5x5")
    return params | leaves(", ".join(f"{path.replace('flow', 'slow')} 5x5" for path in params), role)


LOWER_AND_UPPER = "mix_0/lower 5x5, mix_0/upper 5x5, mix_1/lower 5x5, mix_1/upper 5x5"


def of_params_and_ema():
    parts = LOWER_AND_UPPER.split(", ")
    params, ema = (", ".join(f"{holder}/{part}" for part in parts) for holder in ("params", "ema"))
    return leaves(params) | leaves(ema, Role.STATE)


def in_order(*roots):
    """The order of use: the modules of some roots one after the other."""
    first = {"params": LOWER_AND_UPPER, "ema": LOWER_AND_UPPER}
    other = "0/below, 0/above, 1/below, 1/above"
    return [f"{root}/{part.split()[0]}" for root in roots for part in first.get(root, other).split(", ")]


AVERAGES = {
    "ema/mix_0/lower": "slow/0/below",
    "ema/mix_0/upper": "slow/0/above",
    "ema/mix_1/lower": "slow/1/below",
    "ema/mix_1/upper": "slow/1/above",
}
MODEL = {path.replace("ema", "params"): other.replace("slow", "flow") for path, other in AVERAGES.items()}


def test_an_average_of_any_name_follows_its_parameter():
    """The order of use would exchange `lower` and `upper`, as sampling reads averages from last to first."""
    used = order([*in_order("params"), *in_order("ema")[::-1]], in_order("flow", "slow"))
    found = pairs(
        infer(of_params_and_ema(), of_flow_and_slow(Role.STATE), programs=Programs(order=lambda: used))
    )
    assert found == MODEL | AVERAGES


TRAINED = [Rule(reference=("params/mix_(.)/lower",), candidate=(r"flow/\1/below",))]
TRAINED += [Rule(reference=("params/mix_(.)/upper",), candidate=(r"flow/\1/above",))]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_clone_of_the_model_is_no_parameter(swapped):
    """As `nnx.clone` makes it for an average or a target network: all leaves are of type Param."""
    sides = of_params_and_ema(), of_flow_and_slow(Role.PARAMS)
    roots = [("params", "ema"), ("flow", "slow")]
    used = order(*(in_order(*(each[::-1] if swapped else each)) for each in roots))
    assert pairs(infer(*sides, TRAINED, programs=Programs(order=lambda: used))) == MODEL | AVERAGES
    rules = [*TRAINED, Rule(reference=("ema/mix_(.)/lower",), candidate=(r"slow/\1/below",))]
    assert pairs(infer(*sides, rules, programs=Programs(order=lambda: used))) == MODEL | AVERAGES


@pytest.mark.parametrize(("one", "other"), [("params", "flow"), ("params", "slow"), ("ema", "slow")])
def test_a_program_of_one_module_does_not_tell_a_clone_from_the_model(one, other):
    """It may read the average for the model by mistake."""
    used = order(in_order(one), in_order(other))
    with pytest.raises(MapError):
        infer(
            of_params_and_ema(), of_flow_and_slow(Role.PARAMS), TRAINED, programs=Programs(order=lambda: used)
        )


@pytest.mark.parametrize("role", [Role.STATE, Role.PARAMS])
@pytest.mark.parametrize("late", [True, False])
def test_an_average_of_one_module_follows_its_parameters(role, late):
    """Such as the slow critic of a world model; one side holds it as a clone, or uses it before the critic."""
    parts = (
        (["prior/low"], ["critic/low", "critic/high"], ["slow/high", "slow/low"]),
        (["world/prior/below"], ["critic/below", "critic/above"], ["late/below", "late/above"]),
    )
    used = order(*((a + b + c if late else a + c + b) for a, b, c in parts))
    reference = leaves("critic/low 5x5, critic/high 5x5, prior/low 3x3")
    candidate = leaves("critic/below 5x5, critic/above 5x5, world/prior/below 3x3")
    found = infer(
        reference | leaves("slow/low 5x5, slow/high 5x5", Role.STATE),
        candidate | leaves("late/below 5x5, late/above 5x5", role),
        [Rule(reference=("critic/low",), candidate=("critic/below",))],
        programs=Programs(order=lambda: used),
    )
    assert pairs(found) == {
        "critic/low": "critic/below",
        "critic/high": "critic/above",
        "prior/low": "world/prior/below",
        "slow/low": "late/below",
        "slow/high": "late/above",
    }


def test_a_clone_is_found_although_its_model_lacks_a_leaf():
    """Such as a layer that the candidate uses twice, in place of two layers."""
    names = ("a", "b", "c", "d", "last")
    reference = leaves(", ".join(f"params/net/{name} 5x5" for name in names))
    reference |= leaves(", ".join(f"mean/{name} 5x5" for name in names), Role.STATE)
    candidate = leaves(", ".join(f"{module}/{name} 5x5" for module in ("net", "late") for name in "abcd"))
    used = order([*reference], [*candidate])
    with pytest.raises(MapError) as caught:
        infer(reference, candidate, programs=Programs(order=lambda: used))
    assert {leaf.path for leaf in caught.value.reference} == {"params/net/last", "mean/last"}
    assert not caught.value.candidate


def test_a_clone_is_found_beside_a_state_with_the_leaves_of_another_module():
    reference = leaves("net/a 5x5, net/b 5x5, head/w 3x3") | leaves(
        "slow/net/a 5x5, slow/net/b 5x5, cache/w 3x3", Role.STATE
    )
    candidate = leaves("net/a 5x5, net/b 5x5, late/a 5x5, late/b 5x5, head/w 3x3")
    candidate |= leaves("cache/w 3x3", Role.STATE)
    used = order(
        ["net/a", "net/b", "head/w", "slow/net/a", "slow/net/b", "cache/w"],
        ["net/a", "net/b", "head/w", "late/a", "late/b", "cache/w"],
    )
    found = pairs(infer(reference, candidate, programs=Programs(order=lambda: used)))
    assert (found["slow/net/a"], found["slow/net/b"]) == ("late/a", "late/b")


@pytest.mark.parametrize("fed", [("a", "b"), ("b", "a")])
def test_moments_of_an_optimizer_of_any_name_follow_the_parameters_that_it_updates(fed):
    """The order of use would exchange `mu` and `nu`, and the parts."""
    moments = [f"0/{moment}/w" for moment in ("mu", "nu")]
    parts = "left", "right"
    reference = leaves("params/left/w 5x5, params/right/w 5x5")
    candidate = leaves("left/w 5x5, right/w 5x5")
    own = [f"opt_state/{part}/{moment}" for part in parts for moment in moments]
    others = [f"{holder}/opt_state/{moment}" for holder in "ab" for moment in moments]
    reference |= leaves(", ".join(f"{path} 5x5" for path in own), Role.OPTIMIZER)
    candidate |= leaves(", ".join(f"{path} 5x5" for path in others), Role.OPTIMIZER)
    feeding = {
        part: {f"{part}/w", *(f"{holder}/opt_state/{moment}" for moment in moments)}
        for part, holder in zip(parts, fed, strict=True)
    }
    used = order([*reference], [*candidate][::-1])
    programs = Programs(order=lambda: used, feeding=lambda: ({}, feeding))
    found = pairs(infer(reference, candidate, programs=programs))
    for part, holder in zip(parts, fed, strict=True):
        for moment in moments:
            assert found[f"opt_state/{part}/{moment}"] == f"{holder}/opt_state/{moment}"


@pytest.mark.parametrize("single", [True, False])
def test_the_only_moments_and_averages_of_two_equal_parts_follow_either(single):
    """Such as those of the fast weights of lookahead; the programs use the leaves in another order on each side."""
    reference = leaves("fast/first/w 5x5, fast/second/w 5x5, slow/first/w 5x5, slow/second/w 5x5")
    candidate = leaves("fast/net/q 5x5, fast/net/k 5x5, slow/net/q 5x5, slow/net/k 5x5")
    rules = [
        Rule(reference=(f"(fast|slow)/{one}/w",), candidate=(rf"\g<1>/net/{other}",))
        for one, other in (("first", "q"), ("second", "k"))
    ]
    more = {"0/trace": "0/trace"} | ({} if single else {"1/trace": "1/trace"})
    for one, other in more.items():
        reference |= leaves(f"{one}/first/w 5x5, {one}/second/w 5x5", Role.OPTIMIZER)
        candidate |= leaves(f"{other}/net/k 5x5, {other}/net/q 5x5", Role.OPTIMIZER)
    reference |= leaves("average/first/w 5x5, average/second/w 5x5", Role.STATE)
    candidate |= leaves("smooth/net/k 5x5, smooth/net/q 5x5", Role.STATE)
    found = infer(
        reference,
        candidate,
        rules,
        programs=Programs(order=lambda: order(sorted(reference), sorted(candidate))),
    )
    matched = {entry.reference[0]: entry.matched_by for entry in found.entries}
    assert pairs(found)["average/first/w"] == "smooth/net/q"
    assert (pairs(found)["0/trace/first/w"] == "0/trace/net/q") is single
    assert (matched["0/trace/first/w"] == FOLLOWS) is single


def test_the_only_moment_of_parts_with_other_partners_follows_none():
    """It may be that of the second part, which a rule turns or names crosswise."""
    reference = leaves("actor/first 5x5, actor/second 5x5, critic/first 5x5, critic/second 5x5")
    candidate = leaves("actor/q 5x5, actor/k 5x5, critic/q 5x5, critic/k 5x5")
    reference |= leaves("0/trace/critic/first 5x5", Role.OPTIMIZER)
    pairings = {
        "actor/first": "actor/q",
        "actor/second": "actor/k",
        "critic/first": "critic/k",
        "critic/second": "critic/q",
    }
    rules = [Rule(reference=(one,), candidate=(other,)) for one, other in pairings.items()]
    reference |= leaves("slow/first 5x5, slow/second 5x5", Role.STATE)
    candidate |= leaves("late/q 5x5, late/k 5x5", Role.STATE) | leaves("0/trace/critic/k 5x5", Role.OPTIMIZER)
    used = order(["slow/first", "slow/second"], ["late/k", "late/q"])
    found = infer(reference, candidate, rules, programs=Programs(order=lambda: used))
    assert pairs(found)["slow/first"] == "late/k"
    assert all(one.matched_by != FOLLOWS for one in found.entries if one.role is Role.STATE)


def test_the_moments_of_two_optimizers_of_a_part_differ_by_their_numbers():
    reference = leaves("decoder/y/w 5x5, encoder/x/w 5x5")
    candidate = leaves("dec/a/k 5x5, enc/b/k 5x5")
    names = {"decoder/y/w": ("dec", "a/k"), "encoder/x/w": ("enc", "b/k")}
    for name, (part, inside) in names.items():
        for at in (0, 1):
            reference |= leaves(f"{at}/mu/{name} 5x5", Role.OPTIMIZER)
            candidate |= leaves(f"{part}/{at}/mu/{inside} 5x5", Role.OPTIMIZER)
    rules = [Rule(reference=(name,), candidate=("/".join(other),)) for name, other in names.items()]
    found = pairs(infer(reference, candidate, rules))
    assert found["1/mu/decoder/y/w"] == "dec/1/mu/a/k"


def test_moments_follow_parameters_of_a_part_with_its_own_optimizer():
    """The optimizer was made from the part, and has another name."""
    names = {"prior": "world/guess", "posterior": "world/correct", "critic": "critic"}
    shapes = {"prior": "5x5", "posterior": "5x5", "critic": "3x3"}
    reference = leaves(", ".join(f"{name}/out/w {shape}" for name, shape in shapes.items()))
    reference |= leaves(", ".join(f"0/mu/{name}/out/w {shapes[name]}" for name in shapes), Role.OPTIMIZER)
    candidate = leaves(", ".join(f"{names[name]}/end/k {shape}" for name, shape in shapes.items()))
    moments = "world_opt/0/mu/correct/end/k 5x5, world_opt/0/mu/guess/end/k 5x5, critic_opt/0/mu/end/k 3x3"
    candidate |= leaves(moments, Role.OPTIMIZER)
    rules = [
        Rule(reference=(f"{name}/out/w",), candidate=(f"{other}/end/k",)) for name, other in names.items()
    ]
    found = infer(reference, candidate, rules)
    assert pairs(found)["0/mu/prior/out/w"] == "world_opt/0/mu/guess/end/k"
    assert pairs(found)["0/mu/critic/out/w"] == "critic_opt/0/mu/end/k"
    assert {entry.matched_by for entry in found.entries} == {"rule", "parameter it belongs to"}


def test_moments_follow_parameters_whose_holder_they_lack():
    """A trainer holds the model as ``net``; the optimizer was made from the model."""
    reference = leaves("scale 5, shift 5") | leaves("0/mu/scale 5, 0/mu/shift 5", Role.OPTIMIZER)
    candidate = leaves("net/norm/tint 5, net/norm/sheen 5") | leaves(
        "0/mu/norm/tint 5, 0/mu/norm/sheen 5", Role.OPTIMIZER
    )
    rules = [
        Rule(reference=(one,), candidate=(f"net/norm/{other}",))
        for one, other in (("scale", "tint"), ("shift", "sheen"))
    ]
    found = infer(reference, candidate, rules)
    assert pairs(found)["0/mu/scale"] == "0/mu/norm/tint"
    assert {entry.matched_by for entry in found.entries} == {"rule", "parameter it belongs to"}


def test_statistics_tell_modules_of_equal_parameters_apart():
    def norms(batch, group, root, state):
        parameters = leaves(", ".join(f"{root}/{name}/scale 8" for name in (batch, group)))
        return parameters | leaves(f"{state}/{batch}/mean 8, {state}/{batch}/var 8", Role.STATE)

    reference = norms("avg", "bund", "params", "batch_stats")
    found = pairs(infer(reference, norms("mittel", "gruppe", "model", "model")))
    assert found["params/avg/scale"] == "model/mittel/scale"
    assert found["batch_stats/avg/mean"] == "model/mittel/mean"
