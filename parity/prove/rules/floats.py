"""Simplifications that round nothing: constants, neutral elements, order of operands, signs and bounds."""

import dataclasses
import math

import numpy as np

from parity.prove.rules.logic import COMPARED, FUNCTIONS, inside
from parity.prove.rules.registry import RewriteRule
from parity.prove.rules.terms import Term, Terms
from parity.prove.rules.types import holds, is_number, is_whole_number, numpy_type, reciprocal
from parity.prove.rules.views import View

_ROUNDED_ONCE = {**FUNCTIONS, "divide": np.divide, "sqrt": np.sqrt}
_NEUTRAL = {
    "add": -0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "divide": 1.0,
    "maximum": -math.inf,
    "minimum": math.inf,
}
_NEUTRAL_INTEGERS = {"add": 0, "subtract": 0, "multiply": 1, "and": -1, "or": 0, "xor": 0}
_RIGHT_ONLY = ("subtract", "divide")
_SUNK = ("divide", "maximum", "minimum")
"""Operations that XLA moves before a broadcast of their operands, even if they would vanish."""
_SIGNS = {"add": "subtract", "subtract": "add"}


@RewriteRule(
    name="square",
    on=("square",),
    rewrites="square(x) -> x * x",
    condition="real numbers",
    argument="CHLO defines it so, and every backend expands it first.",
    attacked_by="square or product",
    keeps_narrow=True,
)
def _square(table: Terms, call: Term) -> Term | None:
    if not is_number(call.element):
        return None
    return Term("multiply", "[]", call.operands * 2, call.elements * 2, call.element)


@RewriteRule(
    name="power-of-two",
    on=("divide",),
    rewrites="x / c -> x * (1 / c)",
    condition="c is a power of two; c and 1 / c are normal numbers of the type",
    argument="Quotient and product are one real number, rounded once. Compilers do the same.",
    attacked_by="half by division or by product",
    keeps_narrow=True,
)
def _by_power_of_two(table: Terms, call: Term) -> Term | None:
    value = table.real(call.operands[1])
    inverse = None if value is None else reciprocal(value, call.element)
    if inverse is None:
        return None
    factor = table.make_real(inverse, call.element).moved([[(call.operands[0].count, 0)]])
    return dataclasses.replace(call, name="multiply", operands=(call.operands[0], factor))


@RewriteRule(
    name="neutral",
    on=tuple({**_NEUTRAL, **_NEUTRAL_INTEGERS}),
    rewrites="x + -0.0, x - 0.0, x * 1, x / 1, max(x, -inf), min(x, inf), and of integers x + 0, x - 0, x * 1, x & ~0, "
    "x | 0, x ^ 0 -> x",
    condition="integers, booleans, floats of 32 bits or more; of floats the sign of zero counts",
    argument="The result is x for each x, -0 and infinities included. Compilers remove these first of all.",
    attacked_by="neutral floats",
)
def _neutral(table: Terms, call: Term) -> View | None:
    if not is_number(call.element):
        return None
    neutral = (_NEUTRAL_INTEGERS if is_whole_number(call.element) else _NEUTRAL).get(call.name)
    if call.element == "i1" and call.name == "and":
        neutral = 1
    left, right = call.operands
    for one, other in ((left, right), (right, left)):
        known = table.known(other)
        if known is None or neutral is None or (one.repeats and call.name in _SUNK):
            continue
        same = known == neutral and math.copysign(1, known) == math.copysign(1, neutral)
        if same and (one is left or call.name not in _RIGHT_ONLY):
            return one
    return None


@RewriteRule(
    name="fold-floats",
    on=("add", "subtract", "multiply", "divide", "sqrt", "negate", "convert"),
    rewrites="f32 arithmetic on one known float, repeated -> the float; conversion that changes no value, of one "
    "constant integer, too",
    condition="the result is normal or zero; of functions only sqrt; no boolean",
    argument="IEEE 754 rounds these correctly, so there is one result.",
    attacked_by="constants computed or written",
    keeps_narrow=True,
)
def _folded_float(table: Terms, call: Term) -> View | None:
    is_number = call.elements[0] != "i1" and not table.is_table(call.operands[0])
    known = [table.known(view) if is_number else table.real(view) for view in call.operands]
    values = [value for value in known if value is not None and holds(value, "f32")]
    if len(values) < len(known):
        return None
    if call.name == "convert":
        found = float(values[0])
    elif call.element != "f32":
        return None
    else:
        with np.errstate(all="ignore"):
            found = float(_ROUNDED_ONCE[call.name](*map(np.float32, values)))
    if not holds(found, call.element):
        return None
    return table.make_real(found, call.element).moved([[(call.operands[0].count, 0)]])


@RewriteRule(
    name="signs",
    on=("add", "subtract", "multiply"),
    rewrites="x + (-y) -> x - y, -x + y -> y - x, x - (-y) -> x + y, x * -1 -> -x",
    condition="floats of 32 bits or more",
    argument="IEEE 754 defines a difference as the sum with the negated operand; a factor of -1 flips the sign.",
    attacked_by="minus as plus the negated",
)
def _signs(table: Terms, call: Term) -> Term | None:
    if is_whole_number(call.element) or not is_number(call.element):
        return None
    left, right = call.operands
    for one, other in ((left, right), (right, left)):
        if call.name == "multiply":
            if table.real(other) == -1.0:
                return Term("negate", "[]", (one,), call.elements[:1], call.element)
        elif (found := inside(table, other, "negate")) and (
            other is right or (call.name == "add" and table.may_swap(left, right))
        ):
            return dataclasses.replace(call, name=_SIGNS[call.name], operands=(one, found.operands[0]))
    return None


@RewriteRule(
    name="bounds",
    on=("minimum", "maximum"),
    rewrites="min(max(x, a), b), max(min(x, b), a) -> clamp(a, x, b)",
    condition="known a < b",
    argument="StableHLO defines clamp so; case by case, NaN included: all give NaN.",
    attacked_by="clip by bounds in either order",
    keeps_narrow=True,
)
def _bounds(table: Terms, call: Term) -> Term | None:
    inner = "maximum" if call.name == "minimum" else "minimum"
    for one, other in (call.operands, call.operands[::-1]):
        found = inside(table, one, inner)
        for x, bound in () if found is None else (found.operands, found.operands[::-1]):
            ends = (bound, other) if inner == "maximum" else (other, bound)
            low, high = map(table.known, ends)
            if low is not None and high is not None and low < high:
                return Term("clamp", "[]", (ends[0], x, ends[1]), call.elements[:1] * 3, call.element)
    return None


@RewriteRule(
    name="compared-choice",
    on=("compare",),
    rewrites="select(p, a, b) < c -> p or not p, a < c -> a constant; other comparisons likewise",
    condition="a, b and c are known numbers, of which c distinguishes a and b",
    argument="The comparison of each number is known.",
    attacked_by="mask of numbers compared",
    keeps_narrow=True,
)
def _compared_choice(table: Terms, call: Term) -> Term | View | None:
    direction, _, order = call.note.partition(" ")
    if direction not in COMPARED or order not in ("FLOAT", "SIGNED"):
        return None
    compare, known = COMPARED[direction], [table.known(view) for view in call.operands]
    if None not in known:
        return table.constant(np.array([compare(*known)]), "i1").moved([[(call.operands[0].count, 0)]])
    for place, view in enumerate(call.operands):
        found, bound = inside(table, view, "select"), known[1 - place]
        numbers = [] if found is None else [table.known(each) for each in found.operands[1:]]
        if found is None or None in numbers or bound is None:
            continue
        yes, no = (compare(*((each, bound)[:: -1 if place else 1])) for each in numbers)
        if yes != no:
            return found.operands[0] if yes else Term("not", "[]", found.operands[:1], ("i1",), "i1")
    return None


@RewriteRule(
    name="operand-order",
    on=("add", "multiply", "maximum", "minimum"),
    rewrites="x * y -> y * x, x + y -> y + x; maxima and minima likewise",
    condition="reals; of sums one operand is an argument or a constant; not two powers, whose exponents XLA adds; only "
    "with a known number in a loop that adds two products",
    argument="IEEE 754 is commutative, except for which of two NaNs is returned. LLVM makes one operation of a sum "
    "and one of its products; it chooses the one whose operands are read later.",
    attacked_by="operands in either order",
    keeps_narrow=True,
)
def _order(table: Terms, call: Term) -> Term | None:
    if call.commutes or is_whole_number(call.element) or not is_number(call.element):
        return None
    if not table.may_swap(*call.operands):
        return None
    if call.name == "add" and not any(table.is_given(view.source) for view in call.operands):
        return None
    if call.name == "multiply" and all(table.is_power(view.source) for view in call.operands):
        return None
    return dataclasses.replace(call, commutes=True)


@RewriteRule(
    name="integer-sums",
    on=("subtract", "add"),
    rewrites="x - c -> x + (-c), x + x -> x * 2",
    condition="integers, c known",
    argument="Exact in arithmetic modulo 2**bits.",
    attacked_by="whole numbers: less a constant",
)
def _integer_sums(table: Terms, call: Term) -> Term | None:
    left, right = call.operands
    if not is_whole_number(call.element) or call.element == "i1":
        return None
    if call.name == "add":
        name, value = "multiply", 2 if left == right else None
    else:
        known = table.scalar(right)
        name, value = "add", None if known is None else -known
    kind = numpy_type(call.element)
    if value is None or kind is None:
        return None
    made = table.constant(np.array([value % 2**64], np.uint64).astype(kind), call.element)
    operands = (left, made.moved([[(left.count, 0)]]))
    return dataclasses.replace(call, name=name, operands=operands, commutes=True)
