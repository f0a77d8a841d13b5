"""Tests whether a difference is the only one: the candidate gets the reference's constant and is compared again."""

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from parity.ir.location import inlined_source
from parity.ir.mlir import dense_array
from parity.ir.stablehlo.operations import names_of
from parity.ir.stablehlo.program import Kind, Op, StableProgram, captures, makers
from parity.prove.conditions import MOVES, Conditions, behind, changed, filling, once_known, replacing
from parity.prove.frontier import Frontier, Trait, Unlike, number
from parity.prove.grade import apart_in, grade, regrouped
from parity.prove.numbering import Numbering, users
from parity.prove.rules.types import is_whole_number, parse_array
from parity.prove.search import Search, attributes_of, side_of
from parity.verdicts import SIDES, one_sided

MOST_ROUNDS = 12
MOST_OPERATIONS = 1_000_000
"""Approximate limit of the operations that are numbered again to find the effect of a difference."""
_SUMS = names_of("add", "subtract")
_SMALL = 1e-15, 1e-3
"""Range of constants that only keep a number from zero; below it, floats of a usual size absorb them."""
_BOUNDED = names_of("add", "subtract", "maximum", "minimum", "clamp")
_ARITHMETIC = _BOUNDED | names_of("multiply", "divide", "power", "remainder", "compare", "and", "or", "xor")
"""Operations whose constants are graded. A selected, padded, sliced or initial constant may never be read."""
_READS_TABLES = names_of("gather", "dynamic_slice")
_COUNTING = _BOUNDED | names_of("multiply", "divide", "remainder")
_SHIFTS = names_of("add", "subtract", "multiply")
_READS_COUNTERS = _ARITHMETIC | names_of("convert")
"""Operations that read counters, without indexing: one form wraps negative indices, another does not."""
_PRECISIONS = frozenset({"precision_config", "algorithm", "exponent_bits", "mantissa_bits"})
_LASTING = frozenset(
    (f"stablehlo.{name}", 0) for name in ("rsqrt", "sqrt", "cbrt", "log", "power", "tanh", "logistic")
) | {("stablehlo.divide", 1)}
"""Operands whose added constants no later operation can remove."""
_SATURATING = frozenset((name, 0) for name in ("stablehlo.tanh", "stablehlo.logistic", "chlo.erf"))
"""Operands whose constant factors no later operation can remove, except for their sign."""
_LAST_IN = {**dict.fromkeys(_BOUNDED, _LASTING), **dict.fromkeys(names_of("multiply", "divide"), _SATURATING)}


class _Swap(NamedTuple):
    """A difference, an operation of the candidate, and the attributes that it has in the reference, by name."""

    entry: Frontier
    unlike: Unlike
    op: Op
    other: Mapping[str, Any]


class Exchange:
    """The first differences of two numbered programs, whose operations it changes and restores."""

    def __init__(self, numberings: Sequence[Numbering], results: Sequence[tuple[int, int]]):
        self._numberings, self._results = numberings, results
        self._sides = [numbering.program for numbering in numberings]
        self._ends = [numbering.ends() for numbering in numberings]
        """The numbers of the results of both programs as they are."""

    def run(self, unequal: Sequence[int]) -> list[Frontier]:
        """Returns the differences, at least one.

        Args:
            unequal: positions of the pairs of results that are not shown equal.
        """
        visited = sum(numbering.visited for numbering in self._numberings)
        entries, swaps = self._search(unequal)
        if not any(map(grade, entries)) and 4 * visited <= MOST_OPERATIONS:
            for op in (op for side in self._sides for op in side.body.walk()):
                _ = captures(op) if op.regions else ()  # cached before any exchange
            rounds = min(MOST_ROUNDS, MOST_OPERATIONS // (2 * max(visited, 1)))
            entries = [*(self._decisive(swaps, unequal, rounds) if swaps else []), *entries]
            if not any(map(grade, entries)):
                if swaps:
                    self._renumbered(1)  # without the exchanges
                entries = [*self._one_sided(unequal, rounds), *entries]
        return entries

    def _search(self, unequal: Sequence[int]) -> tuple[list[Frontier], list[_Swap]]:
        """Returns the current first differences, and the possible exchanges."""
        search = Search(self._numberings)
        entries, swaps = [], []
        for entry in search.run(self._results, unequal):
            swap = _swap(search, entry, self._numberings[1].env)
            swaps += [swap] if swap else []
            entries.append(swap.entry if swap else entry)
        return entries, swaps

    def _decisive(self, swaps: list[_Swap], unequal: Sequence[int], rounds: int) -> list[Frontier]:
        """Returns the first exchange that is needed: results are equal with all exchanges, but not without this one."""
        used, left = [], unequal
        for _ in range(rounds):
            swaps = [swap for swap in swaps if swap.op not in {one.op for one in used}]
            used += swaps
            with _exchanged(used):
                left = self._unequal(unequal, 1)
                if not left or not swaps:
                    break
                _, swaps = self._search(left)
        equal = set(unequal) - set(left)
        if not equal or regrouped([swap.unlike for swap in used]):
            return []
        for swap in used:
            entry = dataclasses.replace(swap.entry, unlike=dataclasses.replace(swap.unlike, decides=True))
            with _exchanged([other for other in used if other is not swap]):
                if grade(entry) and not equal.isdisjoint(self._unequal(unequal, 1)):
                    return [entry]
        return []

    def _one_sided(self, unequal: Sequence[int], rounds: int) -> list[Frontier]:
        """Returns the first operation of one side that decides if some results are equal."""
        numbers = [tuple(numbering.env) for numbering in self._numberings]
        found: dict[Trait, list[_OneSided]] = {Trait.CONDITION: [], Trait.CONSTANT: [], Trait.COUNTER: []}
        for side, program in enumerate(self._sides):
            known = program, numbers[side], frozenset(numbers[1 - side])
            conditions = Conditions(*known).run()
            found[Trait.CONDITION] += [_OneSided(side, op, values) for op, values in conditions]
            found[Trait.CONSTANT] += [_OneSided(side, *each) for each in _added(*known)]
            found[Trait.COUNTER] += [_OneSided(side, *each) for each in _counted(*known)]
        for trait, several in found.items():
            for each in _by_frequency(several)[: max(rounds, 1)]:
                if self._decides(trait, each, unequal):
                    return [_only(trait, each)]
        return []

    def _decides(self, trait: Trait, found: "_OneSided", unequal: Sequence[int]) -> bool:
        """True if some results are equal without an operation, or for only one value of a condition."""
        side, values = found.side, found.values
        if trait is not Trait.CONDITION:
            return self._settles(side, values, unequal)
        known = [once_known(self._sides[side], values, flag) for flag in (False, True)]
        return self._settles(side, known[0], unequal) is not self._settles(side, known[1], unequal)

    def _settles(self, side: int, same: Mapping[int, int], unequal: Sequence[int]) -> bool:
        """True if some results are equal once values of a side are replaced."""
        with changed(replacing(self._sides[side], same)):
            return bool(same) and len(self._unequal(unequal, side)) < len(unequal)

    def _renumbered(self, side: int) -> list[int]:
        """Numbers a program again and returns the numbers of its results."""
        numbering = self._numberings[side]
        numbering.forget()
        numbering.region(numbering.program.body, 0)
        return numbering.ends()

    def _unequal(self, positions: Sequence[int], changed: int) -> list[int]:
        """Returns the positions of the pairs of results that are unequal after a program was changed."""
        ends = [self._renumbered(side) if side == changed else self._ends[side] for side in (0, 1)]
        pairs = {position: self._results[position] for position in positions}
        return [position for position, (first, second) in pairs.items() if ends[0][first] != ends[1][second]]


def _exchanged(swaps: Iterable[_Swap]) -> contextlib.AbstractContextManager[None]:
    """Replaces operations of the candidate in a block."""
    return changed([(swap.op, name, value) for swap in swaps for name, value in swap.other.items()])


class _OneSided(NamedTuple):
    """An operation of one side: its values if it is a condition, else the values without it by those with it."""

    side: int
    op: Op
    values: Any
    constant: str = ""


def _added(
    program: StableProgram, numbers: Sequence[int], others: frozenset[int]
) -> list[tuple[Op, dict[int, int], str]]:
    """Returns the small constants that one side adds to floats in sums that the other side does not have.

    Larger ones change numbers, unless a softmax removes them. Each has its first sum, and the other operand of each of
    its sums, by the sum; then follows each sum alone.
    """
    made = makers(program)
    found: dict[float, dict[int, int]] = {}
    for result, op in made.items():
        if op.form.name not in _SUMS or is_whole_number(op.form.elements[0]) or numbers[result] in others:
            continue
        ends = [filling(made, value) for value in op.operands]
        place = 0 if ends[1] is None and op.form.name == "stablehlo.add" else 1
        constant = ends[place]
        if constant is not None and ends[1 - place] is None and _SMALL[0] < abs(constant) <= _SMALL[1]:
            found.setdefault(constant, {})[result] = op.operands[1 - place]
    parts = [(constant, same) for constant, same in found.items()]
    parts += [(constant, {one: same[one]}) for constant, same in parts if len(same) > 1 for one in same]
    return [(made[min(same)], same, f"{constant:g}") for constant, same in parts]


def _counted(
    program: StableProgram, numbers: Sequence[int], others: frozenset[int]
) -> list[tuple[Op, dict[int, int]]]:
    """Returns the operations on counters that one side reads in its own way, and the arguments behind their results."""
    made, readers = makers(program), users(program)
    origins, shifted = {value: value for value in program.body.parameters}, set[int]()
    for op in program.body.ops:
        inputs = [value for value in op.operands if filling(made, value) is None]
        if op.form.name in _COUNTING and _counts(op.form.slots_out[0]) and len(inputs) == 1:
            origins[op.results.start] = origins.get(inputs[0], -1)
            if op.form.name in _SHIFTS or inputs[0] in shifted:
                shifted.add(op.results.start)
    found = []
    for value, origin in origins.items():
        op = made.get(value)
        if op is None or origin < 0 or value not in shifted:
            continue  # the numbers decide whether a bound matters
        alone = [
            user
            for user, _ in readers[value]
            if user is None or not others.issuperset(numbers[each] for each in user.results)
        ]
        if alone and all(user is not None and user.form.name in _READS_COUNTERS for user in alone):
            found.append((op, {value: origin}))
    return found


def _by_frequency(found: Sequence[_OneSided]) -> list[_OneSided]:
    """Returns operations, those first that a function makes more often on that side.

    Others may be of both sides, and differ because an earlier operation does.
    """

    def kind(each: _OneSided) -> tuple:
        frames = inlined_source(each.op).frames
        return each.op.form.name, each.op.form.word, each.constant, frames and frames[0].function

    made = [(each.side, kind(each)) for each in found]
    counts = collections.Counter(made)
    rest = [counts[side, each] <= counts[1 - side, each] for side, each in made]
    return [found[at] for wanted in (False, True) for at in range(len(found)) if rest[at] is wanted]


def _only(trait: Trait, found: _OneSided) -> Frontier:
    """Returns a difference that only one side has."""
    name, constant, side = found.op.form.name, found.constant, SIDES[found.side]
    texts = one_sided(side, constant, "0")
    return Frontier(
        where=name,
        differences=(f"constant {constant}",) if constant else (),
        unlike=Unlike(trait=trait, operation=name, **texts, element=found.op.form.elements[0], decides=True),
        **one_sided(side, side_of(found.op), None),
    )


def _swap(search: Search, entry: Frontier, env: list[int]) -> _Swap | None:
    """Returns a difference as data with its exchange; None if it is not one trait of two like operations.

    Args:
        env: the numbers of the candidate's values, to which the number of another operand is added.
    """
    if entry not in search.compared:
        return None
    left, right = search.compared[entry]
    if (
        left.form.name != right.form.name
        or left.regions
        or left.effect
        or not search.types_alike(left, right)
    ):
        return None
    if unlike := _attribute(search, left, right):
        other = {"form": left.form, "source": left.source}
    elif found := _operand(search, left, right):
        unlike, place, number = found
        other = {"operands": (*right.operands[:place], len(env), *right.operands[place + 1 :])}
        env.append(number)
    else:
        return None
    return _Swap(dataclasses.replace(entry, unlike=unlike), unlike, right, other)


def _attribute(search: Search, left: Op, right: Op) -> Unlike | None:
    """Returns the attributes in which two operations on equal operands differ."""
    first, second = attributes_of(left), attributes_of(right)
    names = {name for name in (*first, *second) if first.get(name) != second.get(name)}
    if not names or search.numbers(0, left) != search.numbers(1, right):
        return None
    trait = Trait.COMPARISON if names == {"comparison_direction"} else Trait.PRECISION
    if trait is Trait.PRECISION and not names <= _PRECISIONS:
        return None
    texts = [", ".join(each.get(name, "none") for name in sorted(names)) for each in (first, second)]
    if trait is Trait.COMPARISON and all(_chooses(search, side, op) for side, op in enumerate((left, right))):
        return None
    return Unlike(trait=trait, operation=left.form.name, reference=texts[0], candidate=texts[1])


def _operand(search: Search, left: Op, right: Op) -> tuple[Unlike, int, int] | None:
    """Returns the only operand in which two operations of one form differ, if it is a constant.

    Returns:
        The difference, the place of the operand in the second operation, and the number of the first one's operand.
    """
    first, second = search.numbers(0, left), search.numbers(1, right)
    if attributes_of(left) != attributes_of(right) or len(first) != len(second):
        return None
    places = [(place, place) for place in range(len(first)) if first[place] != second[place]]
    if len(places) == 2 and left.form.kind in (Kind.REORDER, Kind.COMMUTE):
        places = [(1 - place, place) for place in (0, 1) if first[place] == second[1 - place]]
        places = [(one, other) for one, other in places if first[one] != second[other]]
    if len(places) != 1:
        return None
    (one, other), name = places[0], left.form.name
    values = left.operands[one], right.operands[other]
    texts = [search.literal(side, value) for side, value in enumerate(values)]
    kind = parse_array(str(left.source.operands[one].type))
    if kind is None:
        return None
    if None in texts or name not in _ARITHMETIC | _READS_TABLES:
        return None
    texts = apart_in(*map(_array, map(makers, search.programs), values)) or texts
    if name not in _ARITHMETIC and texts[0] == search.literal(0, values[0]):
        return None
    flips = name not in _BOUNDED and len({str(text).lstrip("-") for text in texts}) == 1
    lasts = not flips and _lasts(search.programs[0], left) and _lasts(search.programs[1], right)
    unlike = Unlike(
        trait=Trait.CONSTANT,
        operation=name,
        reference=str(texts[0]),
        candidate=str(texts[1]),
        element=kind.element,
        lasts=lasts,
    )
    return unlike, other, search.number(0, values[0])


def _array(made: Mapping[int, Op], value: int) -> np.ndarray | None:
    """Returns the entries of a constant, before it is moved; None if it is computed or has no NumPy type."""
    op = made.get(behind(made, value))
    if op is None or op.form.name != "stablehlo.constant":
        return None
    return dense_array(op.form.attributes["value"])


def _chooses(search: Search, side: int, op: Op) -> bool:
    """True if a comparison only chooses between its operands, so that a tie chooses between equals."""

    def said(values: Sequence[int]) -> set[tuple[int, float]]:
        texts = [search.literal(side, value) for value in values]
        constants = [number(text) if text else None for text in texts]
        return {
            (search.number(side, value), 0.0) if constant is None else (-1, constant)
            for value, constant in zip(values, constants, strict=True)
        }

    readers = users(search.programs[side])[op.results.start]
    return bool(readers) and all(
        user is not None
        and user.form.name == "stablehlo.select"
        and said(user.operands[1:]) == said(op.operands)
        for user, _ in readers
    )


def _counts(text: str) -> bool:
    """True if a type is that of a single integer."""
    kind = parse_array(text)
    return kind is not None and not kind.shape and is_whole_number(kind.element) and kind.element != "i1"


def _lasts(program: StableProgram, op: Op) -> bool:
    """True if all readers of an operation's result are functions that preserve a difference by its constant."""
    lasting = _LAST_IN.get(op.form.name, frozenset())
    readers, work, found = users(program), [op.results.start], False
    while work:
        for user, place in readers[work.pop()]:
            if user is None:
                return False
            if user.form.name in MOVES:
                work.append(user.results.start)
            elif (user.form.name, place) in lasting:
                found = True
            else:
                return False
    return found
