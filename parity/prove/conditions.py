"""Conditions that only one side has: each is fixed to true and to false, to see whether it decides a result."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram, makers
from parity.prove.numbering import users
from parity.prove.rules.types import is_whole_number

MOVES = names_of(Group.REARRANGES, "convert")
_JOINS = MOVES | names_of("and", "or", "xor", "not", "reduce", "multiply", "subtract")
"""Operations that combine several conditions, or masks made of them, into one."""
_PRODUCTS = names_of("multiply", "dot_general")
_NEUTRAL = {
    **dict.fromkeys(names_of("and", "multiply"), 1.0),
    **dict.fromkeys(names_of("or", "add", "subtract"), 0.0),
}
"""Numbers that leave the other operand as it is; of a difference, on the right only."""
_IF_NONZERO: Mapping[str, bool] = {"NE": True, "GT": True, "EQ": False, "LE": False}
"""Result of comparing a mask that is one with zero."""
Change = tuple[Op | Region, str, Any]
"""An operation or a region, the name of one of its attributes, and the attribute's other value."""


class Conditions:
    """The conditions of one side that the other side does not have, by the numbers of the values of both."""

    def __init__(self, program: StableProgram, numbers: Sequence[int], others: frozenset[int]):
        self._numbers, self._others = numbers, others
        self._ops = [op for op in program.body.walk() if op.live is not None]
        self._made = makers(program)
        self._users = users(program)
        self._written: set[int] = set()
        """Values that depend on no argument."""
        for op in self._ops:
            self._written.update(op.results if self._written.issuperset(op.operands) else ())
        self._indices = {
            self._origin(value)
            for op in self._ops
            for value in op.operands[facts(op.form.name).first_index or len(op.operands) :]
        }

    def run(self) -> Iterator[tuple[Op, frozenset[int]]]:
        """Yields the operation that makes each condition, and all values that are equal to it."""
        found: dict[int, list[Op]] = {}
        for op in self._ops:
            for value in (part for mask in self._chosen_by(op) for part in self._parts(mask)):
                found.setdefault(self._numbers[value], []).append(op)
        for number, choices in found.items():
            values = [value for value in self._made if self._numbers[value] == number]
            if number not in self._others and not self._is_harmless(values[0], choices):
                yield self._made[values[0]], frozenset(values)

    def _chosen_by(self, op: Op) -> Sequence[int]:
        """Returns the condition of a choice, or the factors of a product that are masks."""
        if op.form.name == "stablehlo.select" or (op.form.kind == Kind.BRANCH and len(op.regions) == 2):
            return op.operands[:1]
        return list(filter(self._is_mask, op.operands)) if op.form.name == "stablehlo.multiply" else []

    def _is_mask(self, value: int) -> bool:
        """True for a condition as a number, the difference of such a mask and one, or a product of masks."""
        op = self._made.get(self._origin(value))
        if op is None or _is_condition(op):
            return op is not None
        if op.form.name == "stablehlo.subtract":
            ends = [self._constant(value) == 1 for value in op.operands]
            return any(ends) and self._is_mask(op.operands[ends.index(False)])
        return op.form.name == "stablehlo.multiply" and all(map(self._is_mask, op.operands))

    def _parts(self, value: int) -> Iterator[int]:
        """Yields a condition and the conditions that it combines, also as masks that it compares with zero."""
        work = [value]
        while work:
            value = self._origin(work.pop())
            op = self._made.get(value)
            if op is None:
                continue
            masks = list(filter(self._is_mask, op.operands)) if op.form.name == "stablehlo.compare" else []
            if _is_condition(op):
                yield value
            if _is_condition(op) or self._is_mask(value):
                work += op.operands if op.form.name in _JOINS and op.form.kind != Kind.REGION else masks

    def _origin(self, value: int) -> int:
        return behind(self._made, value)

    def _constant(self, value: int) -> float | None:
        return filling(self._made, value)

    def _tests(self, value: int) -> Iterator[Op]:
        """Yields the comparisons that a condition combines."""
        op = self._made.get(value)
        if op is None or op.form.name not in _JOINS:
            yield from () if op is None else (op,)
            return
        for operand in op.operands:
            yield from self._tests(operand)

    def _is_harmless(self, value: int, choices: Sequence[Op]) -> bool:
        """True if a condition may be only another form of the same computation, or if runs on data can test it."""
        tests = [test for test in self._tests(value) if test.form.name != "stablehlo.constant"]
        return (
            value in self._written
            or all(map(self._checks_finite, tests))
            or all(map(self._checks_index, tests))
            or all(self._is_spelling(op, tests) for op in choices)
        )

    def _checks_finite(self, test: Op) -> bool:
        """True for a check for NaN or infinity, which runs on such numbers can test."""
        if test.form.name == "stablehlo.is_finite":
            return True
        if test.form.name != "stablehlo.compare":
            return False
        ends = [self._constant(value) for value in test.operands]
        return self._numbers[test.operands[0]] == self._numbers[test.operands[1]] or any(
            end is not None and not math.isfinite(end) for end in ends
        )

    def _checks_index(self, test: Op) -> bool:
        """True for a check that an index is within bounds."""
        if test.form.name != "stablehlo.compare" or "EQ" in test.form.word or "NE" in test.form.word:
            return False
        return bool({self._origin(value) for value in test.operands} & self._indices)

    def _is_spelling(self, choice: Op, tests: Sequence[Op]) -> bool:
        """True if a choice is a bound, a fill out of bounds, an index that wraps, or a product with a mask."""
        if choice.form.name != "stablehlo.select":
            return False
        ends = [self._constant(value) for value in choice.operands[1:]]
        whole = is_whole_number(choice.form.elements[0])
        if any(end is not None and (math.isnan(end) or (whole and abs(end) >= 2**31 - 1)) for end in ends):
            return True  # the fill of an index out of bounds
        compared = [{self._named(value) for value in test.operands} for test in tests]
        if all(self._named(value) in each for each in compared for value in choice.operands[1:]):
            return True
        if not all(self._at_an_end(test) for test in tests):
            return False
        if whole and not _is_condition(choice):
            return self._shifted(*choice.operands[1:])
        makers = [self._made.get(self._origin(value)) for value in choice.operands[1:]]
        readers = [user for user, _ in self._users[choice.results.start]]
        return 0.0 in ends and any(
            products and all(factors & each for each in compared for factors in map(self._factors, products))
            for products in ([maker for maker in makers if self._factors(maker)], readers)
        )

    def _factors(self, op: Op | None) -> set[tuple[str, float]]:
        """Returns the operands of a product."""
        return set() if op is None or op.form.name not in _PRODUCTS else set(map(self._named, op.operands))

    def _named(self, value: int) -> tuple[str, float]:
        constant = self._constant(value)
        return ("number", self._numbers[self._origin(value)]) if constant is None else ("constant", constant)

    def _at_an_end(self, test: Op) -> bool:
        """True for a comparison with zero, with the end of an integer type, or of two computed signs."""
        ends = [self._constant(value) for value in test.operands]
        return all(end is None or end == 0 or abs(end) >= 2**31 - 1 for end in ends)

    def _shifted(self, left: int, right: int) -> bool:
        """True if one value is a sum or difference of the other and another operand."""
        for one, other in ((left, right), (right, left)):
            op = self._made.get(one)
            if op is not None and op.form.name in ("stablehlo.add", "stablehlo.subtract"):
                return self._numbers[other] in [self._numbers[value] for value in op.operands]
        return False


def behind(made: Mapping[int, Op], value: int) -> int:
    """Returns the value behind movements and conversions, given the operations by their results."""
    while (op := made.get(value)) is not None and op.form.name in MOVES:
        value = op.operands[0]
    return value


def filling(made: Mapping[int, Op], value: int) -> float | None:
    """Returns the number that fills a constant behind movements and conversions; None if there is not exactly one."""
    op = made.get(behind(made, value))
    numbers = dense_numbers(op.source.operation) if op and op.form.name == "stablehlo.constant" else ()
    return numbers[0] if numbers else None


def replacing(program: StableProgram, same: Mapping[int, int]) -> list[Change]:
    """Returns the changes that replace values of a program, given the values to use by those that they replace."""
    every = list(program.body.walk())
    held = [(op, "operands", op.operands) for op in every]
    held += [(region, "outputs", region.outputs) for op in every for region in op.regions]
    held.append((program.body, "outputs", program.body.outputs))
    return [
        (holder, name, tuple(_end(same, value) for value in values))
        for holder, name, values in held
        if not same.keys().isdisjoint(values)
    ]


@contextlib.contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """Applies changes to a program in this block."""
    held = [(holder, name, getattr(holder, name)) for holder, name, _ in changes]
    for change in changes:
        setattr(*change)
    try:
        yield
    finally:
        for change in held:
            setattr(*change)


def once_known(program: StableProgram, values: frozenset[int], flag: bool) -> dict[int, int]:
    """Returns the values that a known condition chooses, by those that they replace, given all values equal to it."""
    fold = _Fold(values, flag)
    for op in program.body.walk():
        if op.live is not None:
            fold.add(op)
    return fold.same


def _end(same: Mapping[int, int], value: int) -> int:
    while value in same:
        value = same[value]
    return value


def _is_condition(op: Op) -> bool:
    return op.form.elements[:1] == ("i1",)


class _Fold:
    """The values of a program once a condition is known: ``same`` maps each replaced value to its replacement."""

    def __init__(self, values: frozenset[int], flag: bool):
        self.same: dict[int, int] = {}
        self._numbers = dict.fromkeys(values, float(flag))
        """Values that are zero or one everywhere, because they are constants or follow from the condition."""
        self._following = set(values)
        self._cast: dict[int, int] = {}
        """Conditions that no longer hold the known one, by their values as numbers."""

    def add(self, op: Op) -> None:
        """Follows the condition through an operation."""
        name, result, operands = op.form.name, op.results.start, op.operands
        numbers = [self._numbers.get(value) for value in operands]
        if self._following.isdisjoint(operands):
            self._keep(op, numbers)
        elif op.form.kind == Kind.BRANCH:
            if numbers[0] is not None:
                region = op.regions[numbers[0] != name.endswith("if")]
                self.same.update((op.results[slot], region.outputs[slot]) for slot in op.live or ())
        elif name == "stablehlo.select" and numbers[0] is not None:
            self._replace(result, operands[1 if numbers[0] else 2])
        elif (number := _number(op, numbers)) is not None:
            self._numbers.setdefault(result, number)
            self._following.add(result)
        elif name in _NEUTRAL:
            for place in (1, 0) if name != "stablehlo.subtract" else (1,):
                if numbers[place] == _NEUTRAL[name]:
                    self._replace(result, operands[1 - place])

    def _keep(self, op: Op, numbers: Sequence[float | None]) -> None:
        """Keeps constants, and compares a condition that is left over as a number with zero as the condition itself."""
        name, result, operands = op.form.name, op.results.start, op.operands
        if name == "stablehlo.constant":
            numbers = dense_numbers(op.source.operation)
        if name in ("stablehlo.constant", *MOVES):
            self._numbers.update((result, number) for number in (0.0, 1.0) if tuple(numbers) == (number,))
        if name == "stablehlo.convert" and operands[0] in self.same:
            is_condition = str(op.source.operands[0].type).endswith("i1>")
            self._cast.update({result: operands[0]} if is_condition else {})
        elif "direction NE" in op.form.word and operands[0] in self._cast and numbers[1] == 0:
            self.same[result] = self._cast[operands[0]]

    def _replace(self, result: int, value: int) -> None:
        self.same[result] = value
        number = self._numbers.get(_end(self.same, value))
        if number is not None:
            self._numbers.setdefault(result, number)
            self._following.add(result)


def _number(op: Op, numbers: Sequence[float | None]) -> float | None:
    """Returns what fills an operation's result if it is zero or one; None if it is another number, or not known."""
    name, known = op.form.name, facts(op.form.name)
    zeros = [number == 0 for number in numbers[: known.first_index]]
    if known.zero.suffice(zeros) or (name == "stablehlo.reduce" and zeros[0]):
        return 0.0
    if name == "stablehlo.or" and 1.0 in numbers:
        return 1.0
    first, second = (*numbers, None)[:2]
    if first is None or name in MOVES:
        return first
    if name == "stablehlo.not":
        return 1 - first
    if name == "stablehlo.subtract" and second is not None and first >= second:
        return first - second
    word = next((word for word in _IF_NONZERO if word in op.form.word), "")
    if name == "stablehlo.compare" and second == 0 and word:
        return float(bool(first) is _IF_NONZERO[word])
    return None
