"""The parts of a case, changed one by one."""

import copy
import dataclasses
import pickle

import pytest

import parity
from parity.cases.case import Accept, Case, Explore, Placement
from parity.verdicts import Verdict

SIDES = {"reference": dict, "candidate": dict}
CASE = Case(id="x/grad@single", program="grad", **SIDES)


def test_parts_are_public():
    assert (parity.Accept, parity.Explore, parity.Placement) == (Accept, Explore, Placement)


def test_a_part_is_changed_and_the_rest_stays():
    changed = CASE.with_accept(require=Verdict.BITWISE).with_accept(paranoid=True)
    changed = changed.with_explore(sizes={"layers": 2}).with_placement(backend="tpu", skip_reason="no")
    assert changed == dataclasses.replace(
        CASE,
        accept=Accept(require=Verdict.BITWISE, paranoid=True),
        explore=Explore(sizes={"layers": 2}),
        placement=Placement(backend="tpu", skip_reason="no"),
    )
    assert CASE.accept == Accept() and CASE.explore == Explore() and CASE.placement == Placement()


def test_a_case_is_copied_and_pickled():
    assert copy.copy(CASE) == CASE == pickle.loads(pickle.dumps(CASE))


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        Case(id="x", program="grad", **SIDES, **{"wrong": 1})


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("zero_gradients", "params/head*"),
        ("not_finite", "loss"),
        ("waivers", parity.Waiver(channel="dots", reason="known")),
    ],
)
def test_one_glob_or_waiver_needs_a_sequence(field, given):
    """A text is a sequence of letters, one of which may be ``*``."""
    with pytest.raises(TypeError, match=rf"^accept: {field}: got .*, expected a sequence of them"):
        Accept(**{field: given})
    assert getattr(Accept(**{field: [given]}), field) == [given]


@pytest.mark.parametrize("name", ["ratio", "slack", "floor"])
@pytest.mark.parametrize("bound", [float("inf"), float("nan"), -1])
def test_a_budget_has_finite_bounds(name, bound):
    with pytest.raises(ValueError, match=rf"^{name}: got {bound}, expected a finite number"):
        parity.Budget(**{name: bound})
