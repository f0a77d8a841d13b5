"""Selection of cases: prefix, glob, smoke, order, and the error for a selector that matches nothing."""

import dataclasses
import random

import pytest

from parity.builds.build import Flavour
from parity.cases.case import Case, select
from parity.cases.settings import collect
from parity.channels import ALL, Aspect, of_aspect
from parity.verdicts import Verdict

IDS = (
    "llama2-scan/train_step@fsdp4.tensor2-auto",
    "llama2-scan/forward@fsdp4.tensor2-auto",
    "llama2-scan/train_step@single",
    "llama2-unroll/forward@single",
    "llama2-unroll-remat/forward@single",
    "llama20/forward@single",
    "mixtral/forward@data8-auto",
)


def never():
    raise AssertionError("selecting must not build")


def cases():
    return [
        Case(id=id, reference=never, candidate=never, program="forward", smoke="fsdp4" in id) for id in IDS
    ]


def selected(*selectors):
    return tuple(case.id for case in select(cases(), selectors))


def test_no_selector_selects_all():
    assert selected() == IDS


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("llama2", IDS[:5]),
        ("llama2-scan", IDS[:3]),
        ("llama2-unroll", IDS[3:5]),
        ("llama2-scan/train_step", (IDS[0], IDS[2])),
        ("llama2-scan/train_step@fsdp4", (IDS[0],)),
        (IDS[3], (IDS[3],)),
        ("mixtral", (IDS[6],)),
    ],
)
def test_a_prefix_ends_at_a_word(selector, expected):
    """`llama2` is not a prefix of `llama20`."""
    assert selected(selector) == expected


def test_a_whole_id_selects_no_longer_one():
    short, long = (dataclasses.replace(cases()[0], id=f"net/grad@fsdp4{more}") for more in ("", "-explicit"))
    assert select([short, long], ["net/grad@fsdp4"]) == [short]
    assert select([short, long], ["net/grad"]) == [short, long]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("*", IDS),
        ("*/forward@*", tuple(id for id in IDS if "/forward@" in id)),
        ("*@single", tuple(id for id in IDS if id.endswith("@single"))),
        ("llama2-*/train_step@*", (IDS[0], IDS[2])),
        ("llama2?/*", (IDS[5],)),
        ("[lm]*@data8-auto", (IDS[6],)),
    ],
)
def test_a_glob_is_over_the_whole_id(selector, expected):
    assert selected(selector) == expected


def test_globs_are_case_sensitive_and_whole():
    for selector in ("LLAMA2*", "*forward", "scan/*"):
        with pytest.raises(ValueError):
            selected(selector)


def test_smoke_selects_the_small_subset():
    assert selected("smoke") == IDS[:2]


def test_the_order_is_that_of_the_matrix_without_repeats():
    selectors = ["mixtral", "smoke", "*@single", "llama2-scan", "llama2"]
    expected = selected(*selectors)
    assert expected == IDS
    for seed in range(5):
        random.Random(seed).shuffle(selectors)
        assert selected(*selectors) == expected
    assert selected("mixtral", "llama2-scan/forward") == (IDS[1], IDS[6])


def test_selectors_may_be_a_generator():
    assert [case.id for case in select(cases(), (word for word in ["mixtral", "llama20"]))] == [
        IDS[5],
        IDS[6],
    ]


@pytest.mark.parametrize(
    ("selector", "near"),
    [
        ("lama2", "llama2"),
        ("mixtrall", "mixtral"),
        ("llama2-scna", "llama2-scan"),
        ("llama2-unroll/forwrad@single", "llama2-unroll/forward@single"),
    ],
)
def test_a_selector_that_matches_nothing_names_the_nearest(selector, near):
    with pytest.raises(ValueError) as caught:
        selected("llama2", selector)
    message = str(caught.value)
    assert message.startswith(f"selector {selector!r}: matches none of 7 cases; did you mean ")
    assert near in message.split("did you mean ")[1].split("?")[0].split(", ")
    assert message.endswith("`parity list` shows all")


@pytest.mark.parametrize("selector", ["zzz", ""])
def test_without_a_near_match_there_is_no_guess(selector):
    with pytest.raises(ValueError) as caught:
        selected(selector)
    assert "did you mean" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_smoke_of_a_matrix_without_any_is_an_error_and_not_nothing():
    plain = [case for case in cases() if not case.smoke]
    with pytest.raises(ValueError, match="'smoke': matches none of 5 cases"):
        select(plain, ["smoke"])


def test_a_case_may_rest_on_any_rung_by_default_and_skips_nothing():
    case = cases()[0]
    assert (
        case.accept.require is Verdict.ARBITRATED
        and not case.accept.not_applicable
        and case.float64_reference is None
    )


def test_value_channels_are_channels():
    assert set(of_aspect(Aspect.VALUES)) < set(ALL) and len(set(ALL)) == len(ALL)


def flavour(make):
    """Returns the flavour that a case's function builds; None if it has no such argument."""
    return next((one for one in getattr(make, "args", ()) if isinstance(one, Flavour)), None)


@pytest.mark.slow
def test_the_builtin_twins_require_one_program():
    """They are proved, or reordered with equal bits. A twin that is neither would need an entry here, with a reason."""
    twins = [
        case
        for case in collect()[1]
        if {flavour(side) for side in (case.reference, case.candidate)} == set(Flavour)
    ]
    assert len(twins) > 400
    assert not [case.id for case in twins if case.accept.require is not Verdict.REORDERED]
    assert not [case.id for case in twins if "program" in case.accept.not_applicable]
