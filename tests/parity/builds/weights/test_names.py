"""A use that exchanges leaves of related names is overruled; other uses pair leaves."""

import pytest

from parity.builds.tree import Leaf, Role
from parity.builds.weights.inference import infer
from parity.builds.weights.map import AGAINST_USE
from parity.builds.weights.modules import Programs
from parity.builds.weights.names import prefer_names, related


def square(*names):
    return {name: Leaf(path=name, shape=(5, 5), dtype="float32", role=Role.PARAMS) for name in names}


def paired(reference, candidate, used):
    """Pairs kernels of two sides, of which the candidate uses ``used`` in the place of the reference's."""
    left = {name: str(place) for place, name in enumerate(reference)}
    right = {name: str(place) for place, name in enumerate(used)}
    weights = infer(
        square(*reference), square(*candidate), programs=Programs(use=lambda: {"forward": (left, right)})
    )
    return {entry.reference[0]: (entry.candidate[0], entry.matched_by) for entry in weights.entries}


NAMES = {
    "a word more": (("query", "key"), ("q_query", "k_key")),
    "letters": (("query", "key", "value", "out"), ("wq", "wk", "wv", "wo")),
    "abbreviated": (("attention_proj", "head_p"), ("attn_proj", "head_proj")),
    "one is unrelated": (("stem", "head", "trunk"), ("stem_proj", "head_proj", "body")),
    "other numbers": (("fc1/gate", "fc1/up"), ("dense0/w_gate", "dense0/w_up")),
    "in layers": (("layers/1/pre", "layers/1/post"), ("blocks/1/pre_norm", "blocks/1/post_norm")),
    "glued": (("query", "key", "value"), ("qproj", "kproj", "vproj")),
    "gates": (("input_gate", "forget_gate"), ("igate", "fgate")),
    "by exclusion": (("gate_proj", "up_proj"), ("w_gate", "w_in")),
    "one letter that ends a plural": (("scale", "translation"), ("s", "t")),
    "letters of words": (("forward", "backward"), ("fw", "bw")),
    "order of words": (("cross_token_to_image", "cross_image_to_token"), ("token2image", "image2token")),
    "camel case": (("QProj", "KProj"), ("query", "key")),
    "from one and from zero": (("layer/1", "layer/2", "layer/3"), ("blocks/0", "blocks/1", "blocks/2")),
    "four norms": (
        ("post_attention_norm", "post_feedforward_norm", "input_norm", "pre_feedforward_norm"),
        ("post_attn_ln", "post_ffw_ln", "pre_attn_ln", "pre_ffw_ln"),
    ),
}


@pytest.mark.parametrize(("reference", "candidate"), NAMES.values(), ids=NAMES)
def test_a_use_that_exchanges_related_names_is_no_evidence(reference, candidate):
    right = dict(zip(reference, candidate, strict=True))
    exchanged = (candidate[1], candidate[0], *candidate[2:])
    for used in (candidate, exchanged):
        found = paired(reference, candidate, used)
        assert {name: other for name, (other, _) in found.items()} == right
        against = {name: how for name, (_, how) in found.items() if how.startswith(AGAINST_USE)}
        assert list(against) == ([] if used == candidate else sorted(reference[:2]))
        assert all(how.endswith(exchanged[reference.index(name)]) for name, how in against.items())


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (("input_layernorm", "post_attention_layernorm"), ("attention_norm", "ffn_norm")),
        (("gate_proj", "up_proj"), ("w1", "w3")),
        (("image_tower", "text_tower"), ("text_a", "vision")),
        (("top_down_conv", "bottom_up_conv"), ("up_conv", "down_conv")),
        (("norm_a", "norm_b"), ("before", "after")),
        (("block/conv_a", "block/conv_b", "block/conv_c"), ("unit/bottom", "unit/cross", "unit/across")),
        (("input_norm", "post_attention_norm"), ("attention_norm", "mlp_input_norm")),
        (
            ("input_norm", "post_self_attn_norm", "post_attn_norm", "post_mlp_norm"),
            ("input_ln", "post_attention_ln", "pre_feedforward_ln", "post_feedforward_ln"),
        ),
    ],
)
def test_names_that_say_too_little_leave_it_to_the_use(reference, candidate):
    found = paired(reference, candidate, candidate)
    assert {name: other for name, (other, _) in found.items()} == dict(zip(reference, candidate, strict=True))
    assert all(how.startswith("use in the program") for _, how in found.values())


def test_two_conventions_for_the_parameters_of_a_norm_are_the_same_names():
    reference, right = ("norm/gamma", "norm/beta"), ("norm/scale", "norm/shift")
    found = paired(reference, right, right[::-1])
    assert {name: other for name, (other, _) in found.items()} == dict(zip(reference, right, strict=True))


def test_related_names_pair_where_no_use_is_known():
    assert {
        entry.reference[0]: (entry.candidate[0], entry.matched_by)
        for entry in infer(
            square("query", "key", "value", "out"), square("o_proj", "k_proj", "q_proj", "v_proj")
        ).entries
    } == {
        "query": ("q_proj", "related name"),
        "key": ("k_proj", "related name"),
        "value": ("v_proj", "related name"),
        "out": ("o_proj", "related name"),
    }


def test_a_name_that_is_as_near_to_two_is_related_to_none():
    assert related(["attn", "mlp"], ["attn_in", "attn_out"]) == {}
    assert related(["pre", "pre_norm", "post"], ["pre_scale", "before", "after"]) == {}


def test_numbers_that_all_move_alike_pair_by_number_only_if_one_of_them_moves():
    shifted = {"p1": "blocks/1", "p2": "blocks/0", "p3": "blocks/2"}
    assert prefer_names(shifted) == {"p1": "blocks/0", "p2": "blocks/1", "p3": "blocks/2"}
    in_reverse = {"part_0": "blocks/2", "part_1": "blocks/1", "part_2": "blocks/0"}
    assert prefer_names(in_reverse) == {f"part_{at}": f"blocks/{at}" for at in range(3)}
    convention = {"p5": "blocks/0", "p4": "blocks/1", "p3": "blocks/2"}
    assert prefer_names(convention) == convention
    used = {
        "ln1_0": "blocks/0/ln1",
        "ln2_0": "blocks/0/ln2",
        "ln1_1": "blocks/1/ln1",
        "ln2_1": "blocks/1/ln2",
    }
    assert prefer_names(used) == used
