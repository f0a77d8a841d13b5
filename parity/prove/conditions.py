"""Conditions that only one side has: each is fixed to true and to false, to see whether it decides a result."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.ir.stablehlo.program import Kind, Op, StableProgram
from parity.prove.numbering import users
from parity.prove.rules.types import is_whole_number, parse_array

MOVES = names_of(Group.REARRANGES, "convert")
_JOINS = MOVES | names_of("and", "or", "xor", "not", "reduce", "multiply", "subtract")
"""Operations that combine several conditions, or masks made of them, into one."""
_PRODUCTS = names_of("multiply", "dot_general")
_BY_FLAG = names_of("and", "or", "multiply")
_IF_NONZERO: Mapping[str, bool] = {"NE": True, "GT": True, "EQ": False, "LE": False}
"""Result of comparing a mask that is one with zero."""


class Conditions:
    """The conditions of one side that the other side does not have.

    Args:
        program: the side.
        numbers: the number of each of its values.
        others: numbers of the other side's values.
    """

    def __init__(self, program: StableProgram, numbers: Sequence[int], others: frozenset[int]):
        self._numbers, self._others = numbers, others
        self._ops = [op for op in program.body.walk() if op.live is not None]
        self._made = {result: op for op in self._ops for result in op.results}
        self._users = users(program)
        self._indices = {
            self._origin(value)
            for op in self._ops
            for value in op.operands[facts(op.form.name).first_index or len(op.operands) :]
        }

    def run(self) -> Iterator[tuple[Op, frozenset[int]]]:
        """Yields the operation that makes each condition, and all values that are equal to it."""
        found: dict[int, list[Op]] = {}
        for op in self._ops:
            chosen_by = op.operands[:1] if self._chooses(op) else self._masks(op)
            for value in (part for mask in chosen_by for part in self._parts(mask)):
                found.setdefault(self._numbers[value], []).append(op)
        for number, choices in found.items():
            values = [value for value in self._made if self._numbers[value] == number]
            if number not in self._others and not self._is_harmless(values[0], choices):
                yield self._made[values[0]], frozenset(values)

    def _chooses(self, op: Op) -> bool:
        return op.form.name == "stablehlo.select" or (op.form.kind == Kind.BRANCH and len(op.regions) == 2)

    def _masks(self, op: Op) -> list[int]:
        """Returns the factors of a product that are masks."""
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
        """Returns the value behind movements and conversions."""
        while (op := self._made.get(value)) is not None and op.form.name in MOVES:
            value = op.operands[0]
        return value

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
            not self._reads_arguments(value)
            or all(map(self._checks_finite, tests))
            or all(map(self._checks_index, tests))
            or all(self._is_spelling(op, tests) for op in choices)
        )

    def _reads_arguments(self, value: int) -> bool:
        """True if a value depends on an argument."""
        seen, work = set(), [value]
        while work:
            op = self._made.get(each := work.pop())
            if op is None:
                return True
            if each not in seen:
                seen.add(each)
                work += op.operands
        return False

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
        kind = parse_array(choice.form.slots_out[0])
        ends = [self._constant(value) for value in choice.operands[1:]]
        whole = kind is not None and is_whole_number(kind.element)
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


def filling(made: Mapping[int, Op], value: int) -> float | None:
    """Returns the number that fills a constant; None if there is not exactly one.

    Args:
        made: the operations by their results.
        value: the constant, behind movements and conversions.
    """
    while (op := made.get(value)) is not None and op.form.name in MOVES:
        value = op.operands[0]
    numbers = dense_numbers(op.source.operation) if op and op.form.name == "stablehlo.constant" else ()
    return numbers[0] if numbers else None


def once_known(program: StableProgram, values: frozenset[int], flag: bool) -> dict[int, int]:
    """Returns the values that a known condition chooses, by the values that they replace.

    Args:
        program: the operations.
        values: all values that are equal to the condition.
        flag: the value of the condition.
    """
    return _Fold(values, flag, list(program.body.walk())).same


def without(program: StableProgram, same: Mapping[int, int]) -> Callable[[], None]:
    """Replaces values of a program by others.

    Args:
        program: its operations are changed.
        same: the values to use, by the values that they replace.

    Returns:
        A function that restores the program.
    """
    every = list(program.body.walk())
    regions = [program.body, *(region for op in every for region in op.regions)]
    kept = [op.operands for op in every], [region.outputs for region in regions]

    def instead(held: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(_end(same, value) for value in held) if same.keys() & set(held) else held

    for op in every:
        op.operands = instead(op.operands)
    for region in regions:
        region.outputs = instead(region.outputs)

    def restore() -> None:
        for op, operands in zip(every, kept[0], strict=True):
            op.operands = operands
        for region, outputs in zip(regions, kept[1], strict=True):
            region.outputs = outputs

    return restore


def _end(same: Mapping[int, int], value: int) -> int:
    while value in same:
        value = same[value]
    return value


def _is_condition(op: Op) -> bool:
    kind = parse_array(op.form.slots_out[0])
    return kind is not None and kind.element == "i1"


class _Fold:
    """The values of a program once a condition is known: ``same`` maps each replaced value to its replacement."""

    def __init__(self, values: frozenset[int], flag: bool, every: Sequence[Op]):
        self.same: dict[int, int] = {}
        self._known = dict.fromkeys(values, flag)
        self._zeros: set[int] = set()
        """Values that became zero: the gradient of a branch that is not taken."""
        self._constants: set[int] = set()
        self._ones: set[int] = set()
        self._rest: set[int] = set()
        """Conditions that no longer hold the known one."""
        self._cast: dict[int, int] = {}
        """Such conditions by their values as numbers."""
        for op in every:
            if op.live is not None:
                self._fold(op)

    def _fold(self, op: Op) -> None:
        name, result, operands = op.form.name, op.results.start, op.operands
        flags = [self._known.get(value) for value in operands]
        if op.form.kind == Kind.BRANCH and flags[0] is not None:
            region = op.regions[flags[0] != name.endswith("if")]
            self.same.update((op.results[slot], region.outputs[slot]) for slot in op.live or ())
        elif name == "stablehlo.constant":
            filled = dense_numbers(op.source.operation)
            self._constants.update([result] if filled == (0.0,) else [])
            self._ones.update([result] if filled == (1.0,) else [])
        elif name == "stablehlo.select" and flags[0] is not None:
            self.same[result] = chosen = operands[1 if flags[0] else 2]
            self._zeros.update([result] if {chosen, _end(self.same, chosen)} & self._nil else [])
        elif name in MOVES and flags[0] is not None:
            self._known.setdefault(result, flags[0])
            self._zeros.update([] if flags[0] else [result])
        elif name == "stablehlo.not" and flags[0] is not None:
            self._known.setdefault(result, not flags[0])
        elif name == "stablehlo.subtract" and operands[0] in self._ones and flags[1] is not None:
            self._known.setdefault(result, not flags[1])
            self._zeros.update([result] if flags[1] else [])
        elif name == "stablehlo.subtract" and operands[1] in self._ones and flags[0]:
            self._zeros.add(result)
        elif name in _BY_FLAG and flags != [None, None]:
            self._join(op, flags)
        elif name == "stablehlo.compare" and operands[1] in self._constants:
            self._against_zero(op, flags[0])
        else:
            self._vanish(op)

    @property
    def _nil(self) -> set[int]:
        return self._zeros | self._constants

    def _against_zero(self, op: Op, flag: bool | None) -> None:
        word = next((word for word in _IF_NONZERO if word in op.form.word), "")
        if flag is not None and word:
            self._known.setdefault(op.results.start, flag is _IF_NONZERO[word])
        elif word == "NE" and op.operands[0] in self._cast:
            self.same[op.results.start] = self._cast[op.operands[0]]

    def _join(self, op: Op, flags: Sequence[bool | None]) -> None:
        place = 0 if flags[0] is not None else 1
        flag = flags[place]
        result, other = op.results.start, op.operands[1 - place]
        if flag is (op.form.name == "stablehlo.or"):
            self._known.setdefault(result, bool(flag))
            self._zeros.update([] if flag else [result])
        else:
            self.same.setdefault(result, other)
            self._rest.update([result] if op.form.name != "stablehlo.multiply" else [])
            if other in self._known:
                self._known.setdefault(result, self._known[other])

    def _vanish(self, op: Op) -> None:
        """Follows zeros through products, and removes them from sums."""
        name, result = op.form.name, op.results.start
        if name == "stablehlo.convert" and op.operands[0] in self._rest:
            self._cast[result] = op.operands[0]
        zeros = [value in self._zeros for value in op.operands[: facts(name).first_index]]
        if name in MOVES and op.operands[0] in self._constants | self._ones:
            (self._ones if op.operands[0] in self._ones else self._constants).add(result)
        elif name == "stablehlo.add" and any(zeros):
            self.same[result] = op.operands[1 - zeros.index(True)]
            self._zeros.update([result] if all(zeros) else [])
        elif name == "stablehlo.subtract" and zeros[1]:
            self.same[result] = op.operands[0]
        elif (name == "stablehlo.reduce" and zeros[0]) or facts(name).zero.suffice(zeros):
            self._zeros.add(result)
