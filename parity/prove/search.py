"""Finds the first operations in which two programs differ. It only explains: no proof depends on it."""

import collections
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from parity.ir.location import inlined_source
from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.operations import names_of
from parity.ir.stablehlo.program import Kind, Op, Region, captures, makers
from parity.prove.frontier import (
    MOST_ENTRIES,
    RESULT,
    TABLE,
    Frontier,
    FrontierSide,
    OtherOperand,
    attribute_differences,
    difference,
    short,
)
from parity.prove.numbering import Numbering
from parity.prove.rules.numbering import RuledNumbering
from parity.prove.rules.terms import Terms, Value
from parity.prove.rules.types import parse_array
from parity.verdicts import SIDES, listed

BARRIER = "stablehlo.optimization_barrier"
STACKS = "stablehlo.dynamic_update_slice"
_MAX_ROUNDS = 6
_KEEPS = names_of("broadcast_in_dim", "reshape", "convert")
"""Operations that keep a constant's text."""
_Pair = tuple[Op | None, Op | None]
_Slot = tuple[int, int]
"""A side, and the position of a carry."""


class _Marks(NamedTuple):
    """The properties of an operation by which it is paired."""

    name: str
    types: tuple[str, ...]
    stack: str
    inputs: set[int]


def _likeness(left: _Marks, right: _Marks) -> float:
    """Returns a number that is larger for likelier partners."""
    name, types, stack = (one == other for one, other in zip(left[:3], right[:3], strict=True))
    shared = len(left.inputs & right.inputs) / max(len(left.inputs | right.inputs), 1)
    return 4 * name + 3 * shared + types + stack


class Search:
    """Searches two numbered programs for their first differences.

    With rules, each value is identified by its elements in order, so that a change of shape is no difference.
    """

    def __init__(self, numberings: Sequence[Numbering]):
        self._table, self._numberings = numberings[0].table, numberings
        self.programs = [numbering.program for numbering in numberings]
        self._values: dict[int, Value] = self._table.values if isinstance(self._table, Terms) else {}
        self.compared: dict[Frontier, tuple[Op, Op]] = {}
        """The operations of each difference."""
        self._literals: dict[int, str] = {}

    def run(self, results: Sequence[tuple[int, int]], unequal: Sequence[int]) -> list[Frontier]:
        """Returns the first differences, at least one; a barrier that differs follows the difference behind it."""
        bodies = (self.programs[0].body, self.programs[1].body)
        entries = self._entries(bodies)
        if any(BARRIER in entry.operations for entry in entries):
            behind = self._entries(bodies, fenced=False)
            behind = [each for each in behind if BARRIER not in each.operations]
            entries = [*behind, *entries][:MOST_ENTRIES]
        if entries:
            return entries
        for position in unequal:
            pair = results[position]
            ends = [body.outputs[index] for body, index in zip(bodies, pair, strict=True)]
            entries.append(self._wiring(self.programs[0].result_names[pair[0]], bodies, ends))
        return entries[:MOST_ENTRIES] or [
            Frontier(where="side effects", differences=("their number or order",))
        ]

    def _entries(self, bodies: tuple[Region, Region], fenced: bool = True) -> list[Frontier]:
        for numbering, body in zip(self._numberings, bodies, strict=True):
            changes = numbering.fenced != fenced
            numbering.forget(fenced)
            if changes:
                numbering.region(body, 0)
        return list(dict.fromkeys(self._compare(bodies, (set(), set()), 0)))

    def number(self, side: int, value: int) -> int:
        """Returns the number of a value."""
        return self._numberings[side].env[value]

    def numbers(self, side: int, op: Op) -> list[int]:
        """Returns the numbers of an operation's operands, each of its elements in order."""
        return [self._flat(side, value) for value in op.operands]

    def literal(self, side: int, value: int) -> str | None:
        """Returns a constant as text; None for a computed value."""
        return self._literals.get(self.number(side, value))

    def types_alike(self, left: Op, right: Op) -> bool:
        """True if results have equal types, or, with rules, equal counts and element types."""
        if left.form.slots_out == right.form.slots_out or not isinstance(self._table, Terms):
            return left.form.slots_out == right.form.slots_out
        kinds = [[parse_array(kind) for kind in op.form.slots_out] for op in (left, right)]
        covered = [[(kind.element, kind.count) if kind else None for kind in side] for side in kinds]
        return covered[0] == covered[1] and None not in covered[0]

    def _flat(self, side: int, value: int) -> int:
        """Returns the number of a value's elements in order, regardless of its shape."""
        number = self.number(side, value)
        known = self._values.get(number)
        return self._table.flat(known.view) if known and isinstance(self._table, Terms) else number

    def _source(self, side: int, value: int) -> int:
        """Returns the number of the source of which a value is a view."""
        number = self.number(side, value)
        return self._values[number].view.source if number in self._values else number

    def _known(self, side: int, values: Iterable[int]) -> set[int]:
        """Returns the numbers of those values that have one."""
        return {self._flat(side, value) for value in values if self.number(side, value) >= 0}

    def _regions(self, regions: tuple, known: tuple, depth: int) -> list[Frontier]:
        """Compares two regions whose parameters are numbered."""
        for numbering, region in zip(self._numberings, regions, strict=True):
            numbering.region(region, depth)
        return self._compare(regions, known, depth)

    def _compare(self, regions: tuple, known: tuple, depth: int) -> list[Frontier]:
        """Compares two numbered regions."""
        live = [[op for op in region.ops if op.live is not None] for region in regions]
        here = tuple(
            outer | self._known(side, [*region.parameters, *(value for op in ops for value in op.results)])
            for side, (outer, region, ops) in enumerate(zip(known, regions, live, strict=True))
        )
        unequal = self._known(0, regions[0].outputs) != self._known(1, regions[1].outputs)
        fronts: list[list[Op]] = [[], []]
        for moved in (False, True) if unequal else (False,):
            fronts = [
                [op for op in ops if self._is_first(op, side, here[1 - side], moved)]
                for side, ops in enumerate(live)
            ]
            if any(fronts):
                break
        entries: list[Frontier] = []
        for pair in self._pair(*fronts):
            left, right = self._origin(pair, regions)
            if left and right:
                entries += self._descend((left, right), here, depth)
            else:
                entries.append(self._entry(left, right, ()))
            if len(entries) >= MOST_ENTRIES:
                break
        return entries[:MOST_ENTRIES]

    def _is_first(self, op: Op, side: int, other: set[int], moved: bool) -> bool:
        """True if an operation is unmatched, but its operands, except for constants and movement, are matched.

        Movement that rules follow is not a difference by itself, unless ``moved``; only its reader is.
        """
        numbering, inputs = self._numberings[side], _inputs(op)
        results = [op.results[slot] for slot in op.live or ()] if op.results else []
        numbers = [numbering.env[value] for value in inputs]
        literal = all(number in self._literals for number in numbers) and not op.regions and not op.effect
        if literal and len(results) == 1:
            self._literals[numbering.env[results[0]]] = self._literal_text(op, numbers)
            return False
        removed = (
            not moved and isinstance(numbering, RuledNumbering) and op.results.start in numbering.vanished
        )
        if results and (removed or self._known(side, results) <= other):
            return False
        reads = (self._flat,) if op.form.kind == Kind.WHILE else (self._flat, self._source)
        return all(
            number in self._literals or not other.isdisjoint(read(side, value) for read in reads)
            for number, value in zip(numbers, inputs, strict=True)
        )

    def _origin(self, pair: _Pair, regions: tuple) -> _Pair:
        """Returns the operations behind an operand that differs, or the pair unchanged.

        They give two like operations other elements of one source, or compute a constant of each from other constants.
        """
        left, right = pair
        if not _is_like(left, right) or sorted(self.numbers(0, left)) == sorted(self.numbers(1, right)):  # pyright: ignore
            return pair
        for first, second in zip(left.operands, right.operands, strict=False):  # pyright: ignore
            if self._flat(0, first) == self._flat(1, second):
                continue
            ends = list(zip(regions, (first, second), strict=True))
            makers = [_maker(*each) for each in ends]
            if all(self.literal(*each) for each in enumerate((first, second))):
                makers = [_computation(*each) for each in ends]
                moved = _is_like(*makers)
            else:
                moved = self._source(0, first) == self._source(1, second) and any(makers)
            if moved:
                return self._origin((makers[0], makers[1]), regions)
        return pair

    def _literal_text(self, op: Op, inputs: list[int]) -> str:
        if op.form.name == "stablehlo.constant":
            text = (
                str(op.form.attributes["value"]).partition(" : ")[0].removeprefix("dense<").removesuffix(">")
            )
            not_finite = dense_numbers(op.source.operation) if text.startswith("0x") else ()
            return short(f"{not_finite[0]}" if not_finite else text)
        texts = [self._literals[number] for number in inputs]
        if op.form.name in _KEEPS:
            return texts[0]
        return short(f"{op.form.name.partition('.')[2]}({', '.join(texts)})")

    def _pair(self, left: list[Op], right: list[Op]) -> Iterator[_Pair]:
        """Yields pairs of unmatched operations by name, operands, type and name stack, in program order.

        Only the first pairs are explained, so each is searched for when it is needed.
        """
        marks = [[self._marks(side, op) for op in ops] for side, ops in enumerate((left, right))]
        first, rest = dict(enumerate(marks[0])), dict(enumerate(marks[1]))
        for equal in (2, 1, 0):  # name and types, the name, nothing
            for number, one in list(first.items()):
                best = max(rest, key=lambda other, one=one: _likeness(one, rest[other]), default=None)
                if best is not None and rest[best][:equal] == one[:equal]:
                    del first[number], rest[best]
                    yield left[number], right[best]
        yield from ((left[number], None) for number in first)
        yield from ((None, right[number]) for number in rest)

    def _marks(self, side: int, op: Op) -> _Marks:
        inputs = self._known(side, _inputs(op))
        return _Marks(op.form.name, op.form.slots_out, inlined_source(op).stack, inputs)

    def _correspond(self, left: Op, right: Op) -> bool:
        """True if two operations are likely one place of both programs; else a report must not join their lines."""
        if left.regions:  # branches with other results belong to another choice
            return left.form.kind != Kind.BRANCH or self.types_alike(left, right)
        if inlined_source(left).backward != inlined_source(right).backward:
            return False
        matching = self.types_alike(left, right)
        shared = not self._known(0, _inputs(left)).isdisjoint(self._known(1, _inputs(right)))
        return matching or shared if left.form.name == right.form.name else matching and shared

    def _descend(self, pair: tuple[Op, Op], known: tuple, depth: int) -> list[Frontier]:
        left, right = pair
        lines = self._differences(left, right)
        entries: list[Frontier] = []
        if left.form.kind == right.form.kind and len(left.regions) == len(right.regions):
            if left.form.kind == Kind.WHILE:
                entries, alone = self._loops(pair, known, depth)
                if alone:  # operations of only one body follow from carries of only one loop
                    both = [entry for entry in entries if entry.reference and entry.candidate]
                    lines += self._carry_lines(pair, alone)
                    return [*both, *self._carried(pair, alone), self._entry(left, right, lines)]
            elif left.form.name == right.form.name and not lines:
                for number in range(len(left.regions)):
                    regions = (left.regions[number], right.regions[number])
                    inner = depth + (left.form.kind == Kind.REGION)
                    with self._numberings[0].inside(left), self._numberings[1].inside(right):
                        read = [
                            outer | self._known(side, captures(op))
                            for side, (outer, op) in enumerate(zip(known, pair, strict=True))
                        ]
                        entries += self._regions(regions, tuple(read), inner)
        return entries or [self._entry(left, right, lines)]

    def _loops(self, pair: tuple[Op, Op], known: tuple, depth: int) -> tuple[list[Frontier], list[_Slot]]:
        """Compares two loops whose initial values agree, slot by slot under the likeliest pairing.

        Returns:
            The differences, and the carries that only one loop has.
        """
        colours, entries = self._pair_carries(pair, depth), []
        for regions in zip(*(op.regions for op in pair), strict=True):
            self._assign(regions, colours)
            entries += self._regions(regions, known, depth + 1)
        others = [set(side.values()) for side in reversed(colours)]
        return entries, [
            (side, slot)
            for side in (0, 1)
            for slot, colour in colours[side].items()
            if colour not in others[side]
        ]

    def _carry_lines(self, pair: tuple[Op, Op], alone: Sequence[_Slot]) -> tuple[str, ...]:
        """Returns a line for each kind of carry that only one loop has."""
        lines = collections.Counter(
            f"only the {SIDES[side]} loop carries {pair[side].form.slots_out[slot]} that starts from "
            f"{self.literal(side, pair[side].operands[slot]) or 'a value'}"
            for side, slot in alone
        )
        return tuple(line if count == 1 else f"{count} x {line}" for line, count in lines.items())

    def _carried(self, pair: tuple[Op, Op], alone: Sequence[_Slot]) -> Iterator[Frontier]:
        """Yields the operations behind the first carry that only one loop has, unless it is for a backward pass.

        They make its start on both sides if the other loop has one of that type; else its value in the body.
        """
        slots = dict(reversed(alone))
        types = {pair[side].form.slots_out[slot] for side, slot in slots.items()}
        if len(slots) == 2 and len(types) == 1:
            where = "a loop carry that starts from another value"
            made = [self._made(side, pair[side].operands[slot]) for side, slot in sorted(slots.items())]
        else:
            ((side, slot),) = list(slots.items())[-1:]
            where = f"a value that only the {SIDES[side]} loop carries"
            value = pair[side].regions[1].outputs[slot]
            made = [self._made(side, value) if at == side else None for at in (0, 1)]
        if any(op and inlined_source(op).own for op in made) and "jvp(" not in inlined_source(pair[0]).stack:
            yield Frontier(where=where, reference=side_of(made[0]), candidate=side_of(made[1]))

    def _made(self, side: int, value: int) -> Op | None:
        """Returns the operation that makes a value, which others only move or stack."""
        op = self._makers[side].get(value)
        while op is not None and op.form.name in (STACKS, *_KEEPS):
            op = self._makers[side].get(op.operands[op.form.name == STACKS])
        return op

    def _assign(self, regions: tuple, colours: tuple) -> None:
        for numbering, region, side in zip(self._numberings, regions, colours, strict=True):
            for slot, colour in side.items():
                numbering.env[region.parameters[slot]] = colour

    def _pair_carries(self, pair: tuple[Op, Op], depth: int) -> tuple[dict[int, int], dict[int, int]]:
        """Refines the carries of both loops together; unlike `Numbering`, it keeps unequal pairs together."""
        starts = [numbering.carries(op, depth) for op, numbering in zip(pair, self._numberings, strict=True)]
        colours, moving = zip(*starts, strict=True)
        bodies = (pair[0].regions[1], pair[1].regions[1])
        for _ in range(_MAX_ROUNDS):
            self._assign(bodies, colours)
            groups: dict[int, tuple[list, list]] = {}
            for side, numbering in enumerate(self._numberings):
                numbering.region(bodies[side], depth + 1)
                for slot in moving[side]:
                    update = numbering.env[bodies[side].outputs[slot]]
                    groups.setdefault(colours[side][slot], ([], []))[side].append((update, slot))
            changed = [self._split(colour, group, colours) for colour, group in groups.items()]
            if not any(changed):
                break
        return colours

    def _split(self, colour: int, group: tuple[list, list], colours: tuple) -> bool:
        """Gives carries with equal updates a separate colour, and pairs the remaining ones."""
        updates = [{update for update, _ in side} for side in group]
        if max(map(len, updates)) <= 1 and all(updates):
            return False
        matching = updates[0] & updates[1]
        rest: list[dict[int, int]] = [{}, {}]
        for side in (0, 1):
            for update, slot in group[side]:
                if update in matching:
                    colours[side][slot] = self._table.number("#alike", colour, update)
                else:
                    place = rest[side].setdefault(update, len(rest[side]))
                    word = f"#pair {place}" if updates[1 - side] else f"#alone {side} {place}"
                    colours[side][slot] = self._table.number(word, colour)
        return bool(updates[0] and updates[1])

    def _differences(self, left: Op, right: Op) -> tuple[str, ...]:
        lines = attribute_differences(attributes_of(left), attributes_of(right))
        if left.form.name != right.form.name:
            lines = ()
        if not self.types_alike(left, right) and left.form.kind != Kind.WHILE:
            lines += (f"{RESULT}{_types(left)} against {_types(right)}",)
        if left.form.kind == Kind.WHILE or left.form.name != right.form.name:
            return lines
        numbers = [self.numbers(0, left), self.numbers(1, right)]
        swapped = sorted(numbers[0]) == sorted(numbers[1]) and numbers[0] != numbers[1]
        if swapped and left.form.kind != Kind.COMMUTE:
            return (*lines, "the same operands in another order")
        lines += self._operand_lines((left, right), numbers)
        if len(numbers[0]) != len(numbers[1]):
            lines += (f"{len(numbers[0])} operands against {len(numbers[1])}",)
        return lines

    def _operand_lines(self, pair: tuple[Op, Op], numbers: list[list[int]]) -> tuple[str, ...]:
        """Returns the differences of operands as text: literals by value, others together."""
        lines: list[str] = []
        others: list[str] = []
        given = [list(zip(op.operands, own, strict=True)) for op, own in zip(pair, numbers, strict=True)]
        if pair[0].form.kind in (Kind.REORDER, Kind.COMMUTE) and not set(numbers[0]).isdisjoint(numbers[1]):
            kept = numbers[0][0] == numbers[1][0] or numbers[0][1] == numbers[1][1]
            given[1] = given[1] if kept else given[1][::-1]
        for position, pairs in enumerate(zip(*given, strict=False)):
            (_, first), (_, second) = pairs
            read = [self.literal(side, value) for side, (value, _) in enumerate(pairs)]
            texts = [
                self._computed(side, op, value) if text is None else text
                for side, (op, text, (value, _)) in enumerate(zip(pair, read, pairs, strict=True))
            ]
            if any(read) and texts[0] != texts[1]:
                tables = all(text.startswith(('"', "[")) for text in texts)
                words = TABLE if tables else difference(*texts)
                lines.append(f"operand {position}: {words}")
            elif first != second:
                others.append(str(position))
        if others:
            lines.append(OtherOperand(f"another value: operand {listed(others, 3)}"))
        return tuple(lines)

    def _computed(self, side: int, op: Op, value: int) -> str:
        """Returns a computed operand as text, with the line that makes it if that is outside of the function."""
        maker = self._made(side, value)
        here, lines = inlined_source(op).own, inlined_source(maker).own if maker else ()
        is_inside = not here or any(
            (one.file, one.function) == (here[0].file, here[0].function) for one in lines
        )
        return f"a value made at {lines[0]}" if lines and not is_inside else "a computed value"

    @functools.cached_property
    def _makers(self) -> list[dict[int, Op]]:
        """The operation that makes each value, for each program."""
        return [makers(program) for program in self.programs]

    def _entry(self, left: Op | None, right: Op | None, lines: tuple[str, ...]) -> Frontier:
        names = [op.form.name for op in (left, right) if op is not None]
        where = names[0] if len(set(names)) == 1 else " / ".join(names)
        entry = Frontier(
            where=where,
            reference=side_of(left),
            candidate=side_of(right),
            differences=lines,
            unsure=bool(left and right and not self._correspond(left, right)),
        )
        if left and right:
            self.compared.setdefault(entry, (left, right))
        return entry

    def _wiring(self, where: str, regions: Sequence[Region], ends: Sequence[int]) -> Frontier:
        makers = [_maker(region, value) for region, value in zip(regions, ends, strict=True)]
        texts = [maker.form.name if maker else "a parameter" for maker in makers]
        lines = (f"comes from {texts[0]} against {texts[1]}",)
        return Frontier(
            where=where, reference=side_of(makers[0]), candidate=side_of(makers[1]), differences=lines
        )


def _inputs(op: Op) -> list[int]:
    """Returns the values that an operation reads, including the captures of its regions."""
    operands = op.operands
    if op.form.kind == Kind.WHILE or op.form.kind == Kind.BARRIER:
        operands = tuple(operands[slot] for slot in op.live or ())
    return [*operands, *(captures(op) if op.regions else ())]


def _maker(region: Region, value: int) -> Op | None:
    return next((op for op in region.ops if value in op.results), None)


def _computation(region: Region, value: int) -> Op | None:
    """Returns the operation that computes a constant from others; None if it is written down."""
    op = _maker(region, value)
    while op is not None and op.form.name in _KEEPS:
        op = _maker(region, op.operands[0])
    return op if op is not None and op.operands else None


def _is_like(left: Op | None, right: Op | None) -> bool:
    """True if both are operations of one name with equal attributes."""
    if left is None or right is None or left.form.name != right.form.name:
        return False
    return attributes_of(left) == attributes_of(right)


def attributes_of(op: Op) -> dict[str, str]:
    """Returns the attributes of an operation as text, without a constant's value and without the callee."""
    return {name: str(value) for name, value in op.form.attributes.items() if name not in ("value", "callee")}


def _types(op: Op) -> str:
    return ", ".join(op.form.slots_out)


def side_of(op: Op | None) -> FrontierSide | None:
    """Returns an operation as one side of a difference."""
    if op is None:
        return None
    return FrontierSide(operation=op.form.name, place=inlined_source(op), type=_types(op))
