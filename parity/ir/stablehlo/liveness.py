"""Marks the operations and slots that the results of a program, or its side effects, need."""

import collections

from parity.ir.stablehlo.operations import Group, names_of
from parity.ir.stablehlo.program import SLOTTED, Kind, Op, Region, StableProgram

_HEAVY = frozenset({Kind.WHILE, Kind.BRANCH, Kind.REGION, Kind.MANUAL, Kind.BARRIER})
_HEAVY_NAMES = names_of(Group.COLLECTIVE) | {"stablehlo.custom_call"}
_TURNING = frozenset({Kind.WHILE, Kind.BARRIER})


def has_extra_loops(whole: StableProgram, part: StableProgram) -> bool:
    """True if a program has loops, branches, reductions or collectives that part of its results do not need."""
    return any(
        left.live is not None
        and right.live is None
        and (left.form.kind in _HEAVY or left.form.name in _HEAVY_NAMES)
        for left, right in zip(whole.body.walk(), part.body.walk(), strict=True)
    )


def loop_counts_differ(*sides: StableProgram) -> bool:
    """True if programs differ in the number of loops, or of barriers, such as those left by rematerialisation."""
    counts = [
        collections.Counter(op.form.kind for op in side.body.walk() if op.form.kind in _TURNING)
        for side in sides
    ]
    return any(count != counts[0] for count in counts)


class LiveMarker:
    """Sets ``Op.live`` throughout a program, in one pass over a work list of values.

    A loop's slot is needed if its result is, or if the condition or a needed slot reads its carry. Therefore dead
    carries, and the operations that feed only them, drop out.
    """

    def __init__(self, program: StableProgram):
        self._program = program
        self._seen = bytearray(program.values)
        self._work: list[int] = []
        # Per value: (operation, region number or -1 for a result, position).
        self._definers: list[tuple[Op, int, int] | None] = [None] * program.values
        self._slots: dict[int, set[int]] = {}
        self._effects: list[Op] = []
        self._slotted: list[Op] = []
        self._index(program.body)

    def run(self) -> None:
        """Marks what is live."""
        for op in self._effects:
            self._need(op)
        for position, value in enumerate(self._program.body.outputs):
            if position not in self._program.without:
                self._mark(value)
        while self._work:
            definer = self._definers[self._work.pop()]
            if definer is not None:
                self._follow(*definer)
        for op in self._slotted:
            if id(op) in self._slots:
                op.live = tuple(sorted(self._slots[id(op)]))

    def _follow(self, op: Op, region: int, position: int) -> None:
        """Marks the dependencies of a needed value: a result (region -1) or the parameter of a region."""
        kind = op.form.kind
        if kind == Kind.WHILE or (region < 0 and kind in SLOTTED):
            self._need_slot(op, position)
        elif region < 0:
            self._need(op)
        elif kind == Kind.MANUAL:
            self._mark(op.operands[position])

    def _index(self, region: Region) -> None:
        for op in region.ops:
            for position, value in enumerate(op.results):
                self._definers[value] = (op, -1, position)
            if op.effect:
                self._effects.append(op)
            if op.form.kind in SLOTTED:
                self._slotted.append(op)
            for number, inner in enumerate(op.regions):
                for position, value in enumerate(inner.parameters):
                    self._definers[value] = (op, number, position)
                self._index(inner)

    def _mark(self, value: int) -> None:
        if not self._seen[value]:
            self._seen[value] = 1
            self._work.append(value)

    def _need(self, op: Op) -> None:
        """Marks the dependencies that all slots share: all operands, or the values that control the regions."""
        kind = op.form.kind
        if kind in SLOTTED:
            if id(op) in self._slots:
                return
            self._slots[id(op)] = set()
            if kind == Kind.WHILE:
                self._mark(op.regions[0].outputs[0])
            elif kind == Kind.BRANCH:
                self._mark(op.operands[0])
            return
        if op.live is not None:
            return
        op.live = (0,)
        for value in op.operands:
            self._mark(value)
        for region in op.regions:
            for value in region.outputs:
                self._mark(value)

    def _need_slot(self, op: Op, slot: int) -> None:
        """Marks the dependencies of one result slot; for a loop, those of the slot's carry."""
        self._need(op)
        slots = self._slots[id(op)]
        kind = op.form.kind
        if kind == Kind.WHILE and slot not in slots:
            self._mark(op.operands[slot])
            self._mark(op.regions[1].outputs[slot])
        elif kind == Kind.BARRIER:
            self._mark(op.operands[slot])
        elif kind in (Kind.BRANCH, Kind.MANUAL):
            for region in op.regions:
                self._mark(region.outputs[slot])
        slots.add(slot)
