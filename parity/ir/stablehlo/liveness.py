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


def mark_live(program: StableProgram) -> None:
    """Sets ``Op.live`` throughout a program.

    Values are made before they are read, so that one pass from the last operation to the first finds all that results
    and side effects need. A loop takes further passes over its body: a slot is needed if its result is, or if the
    condition or a needed slot reads its carry. Therefore dead carries, and the operations that feed only them, drop
    out.
    """
    needed = bytearray(program.values)
    for position, value in enumerate(program.body.outputs):
        needed[value] |= position not in program.without
    _mark(program.body, needed)


def _mark(region: Region, needed: bytearray) -> None:
    """Marks the operations of a region that make needed values or have side effects, and what they read."""
    for op in reversed(region.ops):
        while (live := _live(op, needed)) != op.live:
            op.live = live
            _need(op, live or (), needed)


def _live(op: Op, needed: bytearray) -> tuple[int, ...] | None:
    """Returns the needed slots of an operation; for a loop also those of the carries that it reads."""
    kind = op.form.kind
    slots = {slot for slot, value in enumerate(op.results) if needed[value]}
    for region in op.regions if kind == Kind.WHILE else ():
        slots.update(slot for slot, value in enumerate(region.parameters) if needed[value])
    if not (slots or op.effect):
        return None
    return tuple(sorted(slots)) if kind in SLOTTED else (0,)


def _need(op: Op, live: tuple[int, ...], needed: bytearray) -> None:
    """Marks the operands and the results of regions that the slots of an operation need, then the regions."""
    kind, read = op.form.kind, list(op.operands)
    if kind == Kind.BRANCH:
        read = read[:1]
    elif kind == Kind.MANUAL:
        read = []
    elif kind in SLOTTED:
        read = [read[slot] for slot in live]
    for number, region in enumerate(op.regions):
        is_whole = kind not in SLOTTED or (kind == Kind.WHILE and number == 0)
        read += region.outputs if is_whole else [region.outputs[slot] for slot in live]
    for value in read:
        needed[value] = 1
    for region in op.regions:
        _mark(region, needed)
    if kind == Kind.MANUAL:
        for value, parameter in zip(op.operands, op.regions[0].parameters, strict=True):
            needed[value] |= needed[parameter]
