"""Constants that a lowered program compares, clamps, divides, indexes or adds to the entries of its arguments.

A program that branches on a step or on a range of numbers behaves differently only near such a constant. The walk
follows each argument through elementwise operations with constants, so that ``count / 100 > 2.5`` is known as 250.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence

from parity.ir.mlir import dense_numbers, integers
from parity.ir.stablehlo.lowered import trip_counts
from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.ir.stablehlo.program import Op, StableProgram
from parity.values.walk import Walk

MOST_STEPS, MOST_FORMS, MOST_NUMBERS = 24, 6, 32
HUGE = 1e30
"""Larger constants, such as masks and the ends of a dtype, are not numbers that data reaches."""


class Use(enum.StrEnum):
    """Use of a constant by a program."""

    COMPARED = "compared"
    CLAMPED = "clamped"
    DIVIDED = "divided"
    INDEXED = "indexed"
    WRITTEN = "written"
    ADDED = "added"


@dataclasses.dataclass(frozen=True, slots=True)
class ConstantUse:
    """A constant, and the number of an argument at which the program reaches it.

    Args:
        argument: position in ``@main``; None if the other operand is not an elementwise function of one argument.
        number: of that argument; the constant itself for a computed operand.
        is_single: True if the operation has no other constant there.
    """

    use: Use
    constant: float
    argument: int | None
    number: float
    op: Op = dataclasses.field(compare=False)
    is_single: bool = dataclasses.field(compare=False)

    @property
    def is_float(self) -> bool:
        """True if the operation works on floats."""
        return "f" in str(self.op.source.operands[-1].type.element_type)

    @property
    def is_scalar(self) -> bool:
        """True if the operation works on single numbers."""
        return not self.op.source.operands[-1].type.shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constants:
    """The constants of a program.

    Args:
        wraps: ``{result: divisor}`` by position, of results that are a remainder of an argument.
    """

    seen: frozenset[ConstantUse]
    wraps: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """A function of one argument's entries: steps of ``(operation, constant)``."""

    argument: int
    steps: tuple[tuple[str, float], ...] = ()

    def then(self, step: str, constant: float = 0.0) -> "_Form":
        return _Form(self.argument, (*self.steps, (step, constant)))

    def origins(self, number: float) -> list[float]:
        """Returns the numbers of the argument that the steps map to ``number``."""
        numbers = [number]
        for step, constant in reversed(self.steps):
            numbers = [
                before
                for after in numbers
                for before in _inverse(step, after, constant)
                if math.isfinite(before)
            ]
        return numbers


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """A value: some constants, functions of arguments, or neither."""

    numbers: tuple[float, ...] = ()
    forms: frozenset[_Form] = frozenset()

    def join(self, other: "_Known") -> "_Known":
        constant = bool(self.numbers and other.numbers)
        numbers = tuple(dict.fromkeys((*self.numbers, *other.numbers))) if constant else ()
        forms = frozenset(sorted(self.forms | other.forms, key=repr)[:MOST_FORMS])
        return _Known(numbers[:MOST_NUMBERS], forms)


COMPUTED = _Known()
INVERSES: Mapping[str, Callable[[float, float], Sequence[float]]] = {
    "add": lambda y, c: [y - c],
    "subtract": lambda y, c: [y + c],
    "from": lambda y, c: [c - y],
    "multiply": lambda y, c: [y / c],
    "divide": lambda y, c: [y * c],
    "into": lambda y, c: [c / y],
    "negate": lambda y, c: [-y],
    "abs": lambda y, c: [y, -y] if y >= 0 else [],
    "square": lambda y, c: [math.sqrt(y), -math.sqrt(y)],
    "sqrt": lambda y, c: [y * y] if y >= 0 else [],
    "rsqrt": lambda y, c: [1 / (y * y)] if y > 0 else [],
    "exponential": lambda y, c: [math.log(y)],
    "log": lambda y, c: [math.exp(y)],
    "log_plus_one": lambda y, c: [math.expm1(y)],
    "exponential_minus_one": lambda y, c: [math.log1p(y)],
    "tanh": lambda y, c: [math.atanh(y)],
    "logistic": lambda y, c: [math.log(y / (1 - y))],
    "power": lambda y, c: [y ** (1 / c)] if y > 0 else [],
}
STAY = names_of(
    Group.REARRANGES, Group.PICKS, Group.SAME, "convert", "reduce_precision", "all_gather"
) | names_of("floor", "ceil", "round_nearest_even", "round_nearest_afz")
"""Operations whose result has the entries of the first operand, up to rounding."""
JOINED = names_of(Group.JOINS, "select", "clamp")
FOLDS: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "minimum": min,
    "maximum": max,
    "power": pow,
}
REVERSED = {"subtract": "from", "divide": "into"}
Meeting = tuple[Use, _Known, Sequence[float]]
"""The use of a constant, the other operand, and the constants."""


def _either(use: Use) -> Callable[[Op, Sequence[_Known]], list[Meeting]]:
    """Returns a reader that pairs each of two operands with the constants of the other."""
    return lambda op, sides: [(use, sides[0], sides[1].numbers), (use, sides[1], sides[0].numbers)]


DIVISORS: Mapping[str, Callable[[float], float]] = {
    "divide": lambda number: number,
    "remainder": lambda number: number,
    "and": lambda number: number + 1,
    "shift_right_logical": lambda number: 2.0**number,
    "shift_right_arithmetic": lambda number: 2.0**number,
}
"""Operations that divide by a function of their constant; a mask of the last bits is a remainder."""


def _divided(op: Op, sides: Sequence[_Known]) -> list[Meeting]:
    name = op.form.name.rpartition(".")[2]
    orders = (sides, sides[::-1]) if name == "and" else (sides,)
    return [(Use.DIVIDED, one, [*map(DIVISORS[name], other.numbers)]) for one, other in orders]


def _scaled(op: Op, sides: Sequence[_Known]) -> list[Meeting]:
    """Treats multiplication by the inverse of a whole number as a division by it."""
    inverses = [[1 / number for number in side.numbers if 1e-7 < number < 1] for side in sides]
    whole = [[number for number in each if abs(number - round(number)) < 1e-6 * number] for each in inverses]
    return [(Use.DIVIDED, sides[0], whole[1]), (Use.DIVIDED, sides[1], whole[0])]


def _indexed(op: Op, sides: Sequence[_Known]) -> list[Meeting]:
    """Pairs each index with every entry of a short table, and with the last entry of a long table."""
    sizes = [size for size in op.source.operands[0].type.shape if size > 1]
    entries = [range(size) if size <= MOST_NUMBERS else (size - 1,) for size in sizes]
    return [
        (Use.INDEXED, index, [float(n) for each in entries for n in each])
        for index in sides[facts(op.form.name).first_index :]
    ]


def _written(op: Op, sides: Sequence[_Known]) -> list[Meeting]:
    """Pairs each index of a write with the last one that is within bounds; a cache is never written past its end."""
    whole, part = (operand.type.shape for operand in op.source.operands[:2])
    last = [float(size - written) for size, written in zip(whole, part, strict=True)]
    return [(Use.WRITTEN, index, [end]) for index, end in zip(sides[2:], last, strict=True) if end]


MEETINGS: Mapping[str, Callable[[Op, Sequence[_Known]], list[Meeting]]] = {
    "compare": _either(Use.COMPARED),
    "minimum": _either(Use.CLAMPED),
    "maximum": _either(Use.CLAMPED),
    "add": _either(Use.ADDED),
    "clamp": lambda _, sides: [(Use.CLAMPED, sides[1], bound.numbers) for bound in (sides[0], sides[2])],
    **dict.fromkeys(DIVISORS, _divided),
    "multiply": _scaled,
    "dynamic_slice": _indexed,
    "dynamic_update_slice": _written,
    "gather": _indexed,
}


def met_constants(program: StableProgram) -> Constants:
    """Returns the constants that a program combines with its arguments and with computed numbers."""
    walk = _Walk(program, COMPUTED)
    arguments = range(len(program.body.parameters))
    walk.give(program.body.parameters, [_Known(forms=frozenset({_Form(position)})) for position in arguments])
    walk.region(program.body)
    wraps = {
        position: int(divisor)
        for position, value in enumerate(program.body.outputs)
        for form in walk.known[value].forms
        for step, divisor in form.steps
        if step == "remainder"
    }
    return Constants(seen=frozenset(walk.seen), wraps=wraps)


def _inverse(step: str, after: float, constant: float) -> Sequence[float]:
    """Returns the numbers before a step; the number itself if the step has no inverse, such as a remainder."""
    inverse = INVERSES.get(step)
    if inverse is None:
        return [after]
    try:
        return inverse(after, constant)
    except (ValueError, ZeroDivisionError, OverflowError):  # no number has this image
        return []


class _Walk(Walk[_Known]):
    def __init__(self, program: StableProgram, unknown: _Known):
        super().__init__(program, unknown)
        self.seen: dict[ConstantUse, None] = {}
        self._trips = trip_counts(program)

    def results(self, op: Op) -> _Known:
        for inner in op.regions:
            self.give(inner.parameters, [COMPUTED] * len(inner.parameters))
            self.region(inner)
        operands = self.of(op.operands)
        name = op.form.name.rpartition(".")[2]
        for use, side, constants in MEETINGS[name](op, operands) if name in MEETINGS else ():
            self._add(op, use, side, constants)
        return _result(op, name, operands)

    def join(self, op: Op, facts: Sequence[_Known]) -> _Known:
        return functools.reduce(_Known.join, facts)

    def branch(self, op: Op) -> None:
        super().branch(op)
        if op.form.name.endswith("case"):
            places = [float(number) for number in range(len(op.regions))]
            self._add(op, Use.INDEXED, self.known[op.operands[0]], places)

    def _add(self, op: Op, use: Use, side: _Known, constants: Sequence[float]) -> None:
        if side.numbers or not constants:
            return
        single = len(constants) == 1
        for constant in constants:
            if not math.isfinite(constant) or abs(constant) > HUGE:
                continue
            forms = () if use is Use.ADDED else side.forms
            places = [(form.argument, number) for form in forms for number in form.origins(constant)]
            for argument, number in places or [(None, constant)]:
                self.seen.setdefault(ConstantUse(use, constant, argument, number, op, single))

    def loop(self, op: Op) -> None:
        """Follows the unchanged carries of a loop, and of the others the functions of its first and last iteration."""
        body = op.regions[1]
        first = [
            known if returned == parameter else _Known(forms=known.forms)
            for known, returned, parameter in zip(
                self.of(op.operands), body.outputs, body.parameters, strict=True
            )
        ]
        self._iterate(op, first)
        trips = self._trips(op) or 0
        steps = [_step(*each) for each in zip(first, self.of(body.outputs), strict=True)]
        last = [
            known.join(_after(known, "add", step * (trips - 1))) if step and trips else known
            for known, step in zip(first, steps, strict=True)
        ]
        if last != first:
            self._iterate(op, last)
        self.give(op.results, last)

    def _iterate(self, op: Op, carried: Sequence[_Known]) -> None:
        for region in op.regions:
            self.give(region.parameters, carried)
            self.region(region)


def _step(before: _Known, after: _Known) -> float:
    """Returns the number that an iteration adds to a carry; 0 if it does something else."""
    found = {
        form.steps[-1][1]
        for form in after.forms
        if form.steps and form.steps[-1][0] == "add" and _Form(form.argument, form.steps[:-1]) in before.forms
    }
    return found.pop() if len(found) == len(after.forms) == 1 else 0.0


def _result(op: Op, name: str, operands: Sequence[_Known]) -> _Known:
    if name == "constant":
        return _Known(numbers=dense_numbers(op.source.operation, MOST_NUMBERS))
    if name == "iota":
        size = op.form.shapes[0][integers(op.form.attributes["iota_dimension"])[0]]
        return _Known(numbers=(0.0, float(size - 1)))
    if op.form.name in STAY:
        return operands[0]
    if op.form.name in JOINED:
        inputs = {"select": operands[1:], "clamp": operands[1:2]}
        return functools.reduce(_Known.join, inputs.get(name, operands[: facts(op.form.name).first_index]))
    if len(operands) == 1 and name in INVERSES:
        return _after(operands[0], name, 0.0)
    if name == "multiply" and op.operands[0] == op.operands[1] and not operands[0].numbers:
        return _after(operands[0], "square", 0.0)
    return _binary(name, *operands) if len(operands) == 2 else COMPUTED


def _binary(name: str, left: _Known, right: _Known) -> _Known:
    if left.numbers and right.numbers:
        fold = FOLDS.get(name)
        if fold is None or len(left.numbers) != 1 or len(right.numbers) != 1:
            return COMPUTED
        try:
            return _Known(numbers=(float(fold(left.numbers[0], right.numbers[0])),))
        except (ArithmeticError, TypeError):  # a constant that is not finite, or not a real number
            return COMPUTED
    if name in ("minimum", "maximum"):
        return right if left.numbers else left if right.numbers else COMPUTED
    if name in DIVISORS and name != "divide" and right.numbers:
        step = "remainder" if name in ("remainder", "and") else "divide"
        return _after(left, step, DIVISORS[name](right.numbers[-1]))
    if len(right.numbers) == 1:
        return _after(left, name, right.numbers[0]) if name in INVERSES else COMPUTED
    if len(left.numbers) == 1:
        name = REVERSED.get(name, name)
        return _after(right, name, left.numbers[0]) if name in INVERSES and name != "power" else COMPUTED
    return COMPUTED


def _after(known: _Known, step: str, constant: float) -> _Known:
    """Returns the functions with one more step; constants become computed numbers."""
    return _Known(
        forms=frozenset(
            form
            if (step, constant) in (("add", 0.0), ("subtract", 0.0), ("multiply", 1.0))
            else form.then(step, constant)
            for form in known.forms
            if len(form.steps) < MOST_STEPS
        )
    )
