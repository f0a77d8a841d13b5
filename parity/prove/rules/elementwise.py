"""Elementwise operations on flat operands, with views moved behind them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.prove.rules.logic import COMPARED, FUNCTIONS
from parity.prove.rules.registry import SIMPLIFICATIONS, RewriteRule
from parity.prove.rules.terms import FOLDED, Application, Term, Terms, Value
from parity.prove.rules.types import is_whole_number, numpy_type
from parity.prove.rules.views import View, compose, merged, refined, whole

_MAX_STEPS = 16
_BOOLEANS = frozenset({"and", "or", "xor", "not"})


def elementwise(table: Terms, op: Application, name: str, commutes: bool) -> View:
    """Returns an elementwise operation in normal form, given its name with its dialect."""
    count, out = op.out.count, op.out
    views = tuple(_spread(operand, count) for operand in op.operands)
    elements = tuple(operand.type.element for operand in op.operands)
    short = name.partition(".")[2]
    commutes &= len(views) == 2 and table.may_swap(*views)
    note = _note(table, short, op.attributes, elements)
    found = _simplified(table, Term(short, note, views, elements, out.element, commutes))
    return found if isinstance(found, View) else _hoisted(table, found, out.shape)


def _note(table: Terms, name: str, attributes: Mapping[str, Any], elements: Sequence[str]) -> str:
    if name != "compare":
        return str(sorted((key, str(value)) for key, value in attributes.items()))
    direction = str(attributes["comparison_direction"]).rpartition(" ")[2].rstrip(">")
    order = str(attributes.get("compare_type", "NOTYPE")).rpartition(" ")[2].rstrip(">")
    if order == "NOTYPE" and table.applies("compare-direction"):
        order = _usual_order(elements[0])
    return f"{direction} {order}"


def _usual_order(element: str) -> str:
    """Returns the default order for the comparison of elements."""
    if not is_whole_number(element):
        return "FLOAT"
    return "SIGNED" if element.startswith("i") and element != "i1" else "UNSIGNED"


def _spread(operand: Value, count: int) -> View:
    """Returns an operand with as many elements as the result; ``select`` and ``clamp`` also accept scalars."""
    if operand.type.count == count:
        return operand.view
    return operand.view.moved([[(count, 0)]])


def _simplified(table: Terms, call: Term) -> Term | View:
    for _ in range(_MAX_STEPS):
        for rule, simplify in SIMPLIFICATIONS.get(call.name, ()):
            found = simplify(table, call) if table.allows(rule.name) else None
            if found is None:
                continue
            table.use(rule.name)
            if isinstance(found, View):
                return found
            call = found
            break
        else:
            return call
    return call


def _hoisted(table: Terms, call: Term, shape: tuple[int, ...]) -> View:
    """Numbers an operation on the sources of its operands, as far as one view serves them all."""
    past = _past(table, call)
    moving = [view for view in call.operands if not view.is_splat]
    digits = refined(moving) if "reshape" in past else None
    if digits is None or not (moving or "broadcast" in past):
        return _core(table, call, call.operands, shape, past)
    order = _order(table, digits, past, call.commutes)
    if len(order) < len(digits) or not moving:
        table.use(past["broadcast"])
    count, steps, kept = 1, {}, []
    for k in reversed(order):
        steps[k] = count
        kept.insert(0, digits[k])
        count *= digits[k][0]
    bare = []
    columns = iter(range(len(moving)))
    for view in call.operands:
        if view.is_splat:
            bare.append(view.moved([[(count, 0)]]))
            continue
        column = next(columns)
        bare.append(view.moved([[(size, strides[column]) for size, strides in kept]]))
    core = _core(table, call, tuple(bare), (count,), past)
    spread = ((size, steps.get(k, 0)) for k, (size, _) in enumerate(digits))
    factors = merged(spread if moving else [(math.prod(shape), 0)])
    view = compose(View(core.source, count, 0, factors), core)
    assert view is not None, "what is folded or new is whole or one element"
    return view


@RewriteRule(
    name="past-unit-dims",
    rewrites="an elementwise operation on operands with axes of size one -> of it without them",
    condition="every element depends on the operands' elements at one place; no float of fewer than 32 bits; computed "
    "floats, except broadcast ones and sums of several elements, are read in the shape in which they were computed",
    argument="The same function is applied to the same elements. An axis of size one is no loop, so compiled code "
    "is the same. XLA combines two operations, such as products with constants, unless a reshape is between them.",
    attacked_by="product on a unit axis or without",
)
@RewriteRule(
    name="past-moves",
    rewrites="an elementwise operation on operands reshaped, transposed or repeated in one way -> its result moved so",
    condition="every element depends on the operands' elements at one place; all operands are moved in one way",
    argument="The same function is applied to the same elements; but compiled loops then run in another order, which "
    "decides what is contracted.",
    attacked_by="product before or after broadcast",
    loose=True,
)
@RewriteRule(
    name="integers-past-moves",
    rewrites="past-moves of integers, reshaped or repeated, and of booleans, reshaped",
    condition="all operands and the result are integers or booleans; no broadcast of a constant; a converted boolean "
    "is converted again in its own shape",
    argument="As for past-moves; nothing rounds, and XLA's simplifier moves these, too. It makes a product with a "
    "converted boolean a selection, unless a move is between them.",
    attacked_by="whole numbers tripled before or after broadcast",
)
def _past(table: Terms, call: Term) -> dict[str, str]:
    """Returns the movements that may pass an operation, each with the rule that allows it."""
    elements = (*call.elements, call.element)
    rules = {"unit-dims": "past-unit-dims"} | dict.fromkeys(
        ("reshape", "broadcast", "transpose"), "past-moves"
    )
    if all(map(is_whole_number, elements)):
        rules |= dict.fromkeys(("unit-dims", "reshape", "broadcast"), "integers-past-moves")
        if call.element == "i1" or any(map(table.is_table, call.operands)):
            rules["broadcast"] = "past-moves"
    return {movement: rule for movement, rule in rules.items() if table.allows(rule)}


def _order(
    table: Terms, digits: Sequence[tuple[int, tuple[int, ...]]], past: Mapping[str, str], commutes: bool
) -> list[int]:
    """Returns the digits of the bare operation in its order."""
    places = [k for k, (_, strides) in enumerate(digits) if any(strides) or "broadcast" not in past]
    if "transpose" not in past:
        return places
    order = sorted(places, key=lambda k: _weight(digits[k][1], commutes), reverse=True)
    if order != places:
        table.use(past["transpose"])
    return order


def _core(
    table: Terms, call: Term, operands: tuple[View, ...], shape: tuple[int, ...], past: Mapping[str, str]
) -> View:
    count = math.prod(shape)
    if call.commutes and table.flat(operands[0]) > table.flat(operands[1]):
        operands = operands[::-1]
    folded = _folded(table, call, operands, count)
    if folded is not None:
        return folded
    term = dataclasses.replace(call, operands=operands)
    if "reshape" in past:
        table.use(past["reshape"])
        return _of_remainder(table, term, count)
    if "unit-dims" in past:
        if 1 in shape:
            table.use(past["unit-dims"])
        shape = tuple(size for size in shape if size > 1)
    return table.term(term, count, f" {shape}")


def _weight(strides: tuple[int, ...], commutes: bool) -> tuple[int, ...]:
    """Returns the rank of a digit by its strides; if operands commute, regardless of their order."""
    sizes = [abs(stride) for stride in strides]
    return (max(sizes), *(sorted(sizes) if commutes else sizes))


@RewriteRule(
    name="fold",
    rewrites="integer and boolean arithmetic, comparison, selection, conversion of known values -> the values",
    condition="constants of whole bytes, at most 2**14 elements, no iotas; no division, no shift, no float; not from "
    "a table to one number everywhere",
    argument="Two's complement arithmetic modulo 2**bits is the same in NumPy and in StableHLO. XLA computes with "
    "constants when it compiles.",
    attacked_by="table of whole numbers, less one",
)
def _folded(table: Terms, call: Term, operands: Sequence[View], count: int) -> View | None:
    """Computes an operation on known integers and booleans."""
    kind = numpy_type(call.element)
    if kind is None or count > FOLDED or not operands or not table.allows("fold"):
        return None
    data = [table.literal(view) for view in operands]
    known = [each for each in data if each is not None]
    if len(known) < len(data):
        return None
    made = _computed(call, known, kind)
    if made is None or ((made == made[0]).all() and any(map(table.is_table, operands))):
        return None
    table.use("fold")
    return table.constant(made.astype(kind), call.element)


@RewriteRule(
    name="moved-integers",
    rewrites="an integer or boolean computed from one remainder by a known number -> the first with the same values; "
    "select by such a boolean that is always true -> the branch",
    condition="an argument is divided; compiled code fuses it with data movement, choices and one product only",
    argument="Integers are exact. Nothing is added up, and at most one operation rounds.",
    attacked_by="remainder greater than zero or not zero",
)
def _of_remainder(table: Terms, term: Term, count: int) -> View:
    """Returns an operation in normal form, and stores its values if it depends on one remainder only."""
    found = _values(table, term) if table.moved and table.allows("moved-integers") else None
    made = table.term(term, count).source
    if found is None:
        return whole(made, count)
    base, data = made if found[0] is None else found[0], found[1]
    table.tables[made] = base, data
    first = table.tabled.setdefault((base, data.dtype, data.tobytes()), made)
    if first != made:
        table.use("moved-integers")
        table.built = all(first != view.source for view in term.operands)
    return whole(first, count)


def _values(table: Terms, call: Term) -> tuple[int | None, np.ndarray] | None:
    """Returns a remainder, None if the operation is one, and the operation's values for each value of it."""
    kind, views = numpy_type(call.element), call.operands
    if kind is None:
        return None
    if call.name == "remainder":
        most = abs(table.scalar(views[1]) or 0) - 1
        is_known = 0 <= 2 * most < FOLDED and table.is_given(views[0].source)
        return (None, np.arange(-most * (kind.kind == "i"), most + 1).astype(kind)) if is_known else None
    read = [
        table.tables.get(view.source) or (None, table.literal(view.moved([])) if view.is_splat else None)
        for view in views
    ]
    pairs = zip(views, read, strict=True)
    bases = {
        table.flat(dataclasses.replace(view, source=base)) for view, (base, _) in pairs if base is not None
    }
    known = [data for _, data in read if data is not None]
    made = _computed(call, known, kind) if len(bases) == 1 and len(known) == len(read) else None
    return None if made is None else (bases.pop(), made.astype(kind))


def _computed(call: Term, data: Sequence[np.ndarray], kind: np.dtype) -> np.ndarray | None:
    if call.name == "compare":
        direction, _, order = call.note.partition(" ")
        compared = COMPARED.get(direction)
        usual = order == _usual_order(call.elements[0])
        return None if compared is None or not usual else compared(*data)
    if call.name == "select":
        return np.where(data[0], data[1], data[2])
    if call.name == "clamp":
        return np.minimum(np.maximum(data[1], data[0]), data[2])
    if call.name == "convert":
        return data[0] != 0 if call.element == "i1" else data[0].astype(kind)
    fold = FUNCTIONS.get(call.name)
    if fold is None or (call.element == "i1" and call.name not in _BOOLEANS):
        return None
    return fold(*data)
