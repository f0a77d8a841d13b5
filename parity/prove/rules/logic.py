"""Simplifications of single operations: comparisons, negations, selections, conversions, neutral elements."""

import dataclasses

import numpy as np

from parity.prove.rules.registry import RewriteRule
from parity.prove.rules.terms import Term, Terms, Value
from parity.prove.rules.types import Array, is_whole_number
from parity.prove.rules.views import View, compose

_SWAPPED = {"GT": "LT", "GE": "LE"}


COMPARED = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal}
"""The comparisons in normal form."""
FUNCTIONS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "negate": np.negative,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
"""The elementwise operations that NumPy does on integers as StableHLO does."""


def inside(table: Terms, view: View, name: str) -> Term | None:
    """Returns the term behind a view, with its operands as seen through that view, if it has the given name."""
    term = table.terms.get(view.source)
    if term is None or term.name != name:
        return None
    operands = [operand for each in term.operands if (operand := compose(view, each)) is not None]
    return (
        dataclasses.replace(term, operands=tuple(operands)) if len(operands) == len(term.operands) else None
    )


@RewriteRule(
    name="compare-direction",
    on=("compare",),
    rewrites="a > b -> b < a, a >= b -> b <= a, a == b -> b == a, a != b -> b != a",
    condition="any type and order of comparison",
    argument="Holds for each pair of numbers, NaN included: all are false but !=, in both spellings.",
    attacked_by="greater or less",
    keeps_narrow=True,
)
def _direction(table: Terms, call: Term) -> Term | None:
    """Returns ``a > b`` as ``b < a``, and ``a == b`` with exchangeable operands."""
    direction, _, order = call.note.partition(" ")
    if not table.may_swap(*call.operands):
        return None
    if direction in ("EQ", "NE") and not call.commutes:
        return dataclasses.replace(call, commutes=True)
    if direction not in _SWAPPED:
        return None
    return dataclasses.replace(call, note=f"{_SWAPPED[direction]} {order}", operands=call.operands[::-1])


@RewriteRule(
    name="select-known",
    on=("select",),
    rewrites="select by a known predicate -> the branch",
    condition="the predicate is a constant, or one boolean computed from constants, also repeated",
    argument="Case by case. XLA removes such a selection before anything is fused.",
    attacked_by="selection by a constant",
)
def _known_predicate(table: Terms, call: Term) -> View | None:
    _, data = table.tables.get(call.operands[0].source, (0, None))
    if table.moved and data is not None and data.all():
        return table.accept("moved-integers", call.operands[1])
    known = table.scalar(call.operands[0]) if table.certain else None
    return None if known is None else call.operands[1 if known else 2]


@RewriteRule(
    name="boolean-choice",
    on=("select",),
    rewrites="select(p, true, false) -> p, select(p, false, true) -> not p",
    condition="both branches are one known boolean everywhere",
    argument="Case by case. XLA's simplifier does the same before anything is fused.",
    attacked_by="choice of true or false",
    keeps_narrow=True,
)
def _chosen_boolean(table: Terms, call: Term) -> Term | View | None:
    predicate, yes, no = call.operands
    known = [table.scalar(view) for view in (yes, no)] if call.element == "i1" else []
    if known == [1, 0]:
        return predicate
    return Term("not", "[]", (predicate,), ("i1",), "i1") if known == [0, 1] else None


@RewriteRule(
    name="select-negated",
    on=("select",),
    rewrites="select(not p, a, b) -> select(p, b, a), case(not p, a, b) -> case(p, b, a)",
    condition="branches of a case have no side effects",
    argument="Case by case.",
    attacked_by="selection by the opposite",
    keeps_narrow=True,
)
def _negated_predicate(table: Terms, call: Term) -> Term | None:
    """Swaps the branches if the predicate is a negation, an inequality, or known and false in its first element.

    For integers ``a <= b`` counts as the negation of ``b < a``.
    """
    predicate, yes, no = call.operands
    opposite = _opposite_of(table, predicate)
    if opposite is None or not table.may_swap(yes, no):
        return None
    elements = (call.elements[0], call.elements[2], call.elements[1])
    return dataclasses.replace(call, operands=(opposite, no, yes), elements=elements)


def _opposite_of(table: Terms, predicate: View) -> View | None:
    """Returns the opposite of a predicate if it is a negation, an inequality, or known and false at first."""
    data = table.literal(predicate)
    if data is not None:
        return None if data[0] else table.constant(~data, "i1")
    if found := inside(table, predicate, "not"):
        return found.operands[0]
    term = table.terms.get(predicate.source)
    if term is None or term.name != "compare":
        return None
    direction, _, order = term.note.partition(" ")
    if direction == "NE":
        opposite = dataclasses.replace(term, note=f"EQ {order}")
    elif direction == "LE" and is_whole_number(term.elements[0]):  # with floats, NaN makes both false
        opposite = dataclasses.replace(term, note=f"LT {order}", operands=term.operands[::-1])
    else:
        return None
    made = table.term(opposite, predicate.size)
    return compose(View(made.source, made.size, predicate.offset, predicate.factors), made)


@RewriteRule(
    name="same-type",
    on=("convert",),
    rewrites="convert to its own type -> its operand",
    condition="element types are one",
    argument="The identity.",
    attacked_by="to its own type",
    keeps_narrow=True,
)
def _same_type(table: Terms, call: Term) -> View | None:
    return call.operands[0] if call.elements[0] == call.element else None


@RewriteRule(
    name="known-branch",
    rewrites="case of a known index -> the branch",
    condition="no side effects; a number computed from constants; the last branch is taken where it is out of bounds",
    argument="The others do not run. XLA replaces such an operation by its branch before anything is fused.",
    attacked_by="branch by a constant",
    keeps_narrow=True,
)
def branch(table: Terms, index: int, count: int, certain: bool) -> tuple[int | None, list[int]] | None:
    """Returns the index of a branch in normal form and the branches in order; None for the index if one is known."""
    known = table.values.get(index)
    if known is None:
        return None
    value, kind = table.scalar(known.view), known.type
    if value is not None and kind.element != "i1" and certain and table.applies("known-branch"):
        return None, [value if 0 <= value < count else count - 1]
    found = inside(table, known.view, "convert")
    if count != 2 or found is None or found.elements != ("i1",) or not table.allows("select-negated"):
        return None
    opposite = _opposite_of(table, found.operands[0])
    if opposite is None:
        return None
    table.use("select-negated")
    made = table.term(dataclasses.replace(found, operands=(opposite,)), 1)
    return table.shaped(Value(made, Array((), kind.element))), [1, 0]
