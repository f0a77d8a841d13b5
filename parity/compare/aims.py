"""Targets of stress inputs: the constants of both programs, by the leaf or input that is used with them."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from parity.builds.build import Group
from parity.compare.evidence import Evidence
from parity.compare.side import INPUT, Side
from parity.ir.location import inlined_source
from parity.values.constants import Constants, ConstantUse, Use, met_constants

SMALL = 0.1
"""Largest added constant that counts as an epsilon, which keeps a number from being zero."""
MARGIN = 16
"""Distance that counters keep from the maximum of their dtype."""
SCALES = (1e-16, 1e4)
"""Range of the magnitudes that leaves are scaled to."""
T = TypeVar("T")
Place = tuple[bool, str]
"""True if it is an input, and its path; for a leaf of the state, the reference's path."""
Key = tuple[Use, float, Place | None, float]
"""Use, constant, place and number; the place is None for computed numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aims:
    """The constants of both programs.

    Args:
        read: the places that a program reads.
        numbers: ``{place: numbers}`` at which a leaf or an input reaches a constant; those of only one side first.
        marks: ``{input: numbers}`` that say what its entries mean, such as the token of padding: zero and the numbers
            that it is compared with for equality.
        clamps: ``{input: numbers}`` that its entries are clamped at.
        ends: the largest number of each place at which nothing is written past the end of an array.
        wraps: ``{path: divisor}`` of counters that a step returns as a remainder.
        scales: magnitudes of constants that computed numbers are used with; those of only one side first.
        elsewhere: constants of only one side that no run targets, as text.
    """

    read: frozenset[Place]
    numbers: Mapping[Place, Sequence[float]]
    marks: Mapping[str, Sequence[float]]
    clamps: Mapping[str, Sequence[float]]
    ends: Mapping[Place, float]
    wraps: Mapping[str, int]
    scales: Sequence[float]
    elsewhere: Sequence[str]


def harvest(evidence: Evidence) -> Aims:
    """Returns the constants that the lowered programs of both sides use with arguments and computed numbers."""
    names = (
        {path: (path,) for path in evidence.builds[0].leaves},
        {path: entry.reference for entry in evidence.weights.entries for path in entry.candidate},
    )
    sides = evidence.sides
    constants = [side.read(_constants) for side in sides]
    places = [_places(side, names_of) for side, names_of in zip(sides, names, strict=True)]
    found = [_by_place(own, places_of) for own, places_of in zip(constants, places, strict=True)]
    alone = set(found[0]) ^ set(found[1])
    seen = sorted({**found[0], **found[1]}.items(), key=lambda item: (item[0] not in alone, repr(item[0])))
    used = [(use, place, number, each) for (use, _, place, number), each in seen if place is not None]
    of_inputs = [(use, path, number, each) for use, (inputs, path), number, each in used if inputs]
    ends = _grouped((place, number) for use, place, number, _ in used if use is Use.WRITTEN and number >= 0)
    past = (Use.COMPARED, Use.CLAMPED, Use.DIVIDED)
    for use, place, number, _ in used:
        if use in past and place in ends and number > max(ends[place]):
            del ends[place]  # a counter that the programs expect past the end
    return Aims(
        read=frozenset(place for own in places for each in own.values() for place in each),
        numbers=_grouped((place, number) for _, place, number, _ in used),
        marks=_grouped(
            (path, number) for use, path, number, each in of_inputs if use is Use.COMPARED and _is_mark(each)
        ),
        clamps=_grouped((path, number) for use, path, number, _ in of_inputs if use is Use.CLAMPED),
        ends={place: min(each) for place, each in ends.items()},
        wraps={
            name: divisor
            for side, own, names_of in zip(sides, constants, names, strict=True)
            for position, divisor in own.wraps.items()
            for name in names_of.get(side.results[position][1], ())
            if side.results[position][0] == Group.STATE
        },
        scales=_scales(each for (_, _, place, _), each in seen if place is None),
        elsewhere=tuple(
            f"{each.constant:.6g} {each.use} at {inlined_source(each.op)}"
            for key, each in seen
            if key in alone
            and each.use in (Use.COMPARED, Use.CLAMPED)
            and _is_elsewhere(evidence, key[2], each)
        ),
    )


def _grouped(pairs: Iterable[tuple[T, float]]) -> dict[T, tuple[float, ...]]:
    """Returns the numbers of each place, without repetition, in order."""
    found: dict[T, dict[float, None]] = collections.defaultdict(dict)
    for place, number in pairs:
        found[place][number] = None
    return {place: tuple(numbers) for place, numbers in found.items()}


def _places(side: Side, names: Mapping[str, Sequence[str]]) -> dict[int, list[Place]]:
    """Returns the places of each argument that a side reads."""
    return {
        position: [(True, path)] if kind == INPUT else [(False, name) for name in names.get(path, ())]
        for position, (kind, path) in side.read_arguments.items()
    }


def _by_place(own: Constants, places: Mapping[int, Sequence[Place]]) -> dict[Key, ConstantUse]:
    """Returns the uses of the constants of a side; the place is None for computed numbers."""
    return {
        (seen.use, seen.constant, place, seen.number): seen
        for seen in own.seen
        for place in (places.get(seen.argument, ()) if seen.argument is not None else (None,))
    }


def _constants(side: Side) -> Constants:
    return met_constants(side.operations)


def _is_elsewhere(evidence: Evidence, place: Place | None, seen: ConstantUse) -> bool:
    """Returns True if no run sets the operand: it is computed, an integer array, or a count that no run starts from."""
    if place is None:
        return True
    inputs, path = place
    if seen.is_float:
        return False
    leaf = (evidence.builds[0].abstract_inputs if inputs else evidence.state)[path]
    last = np.iinfo(leaf.dtype).max - MARGIN if leaf.dtype.kind in "iu" else math.inf
    splits = seen.number == 0 and any(each in seen.op.form.word for each in ("direction LT", "direction GE"))
    return (inputs and bool(leaf.shape)) or seen.number < 0 or splits or seen.number > last


def _is_mark(seen: ConstantUse) -> bool:
    """True for a test against zero, or for equality with a number.

    A negative number must be compared itself: JAX's floor division of an increased length looks at signs.
    """
    is_equality = any(word in seen.op.form.word for word in ("direction EQ", "direction NE"))
    itself = seen.number == seen.constant
    return seen.is_single and (
        (is_equality and (itself or seen.number >= 0)) or (itself and seen.number == 0)
    )


def _scales(seen: Iterable[ConstantUse]) -> tuple[float, ...]:
    """Returns the magnitudes of constants that computed floats are used with, arrays before single numbers."""
    sizes: dict[float, None] = {}
    for each in sorted(seen, key=lambda each: each.is_scalar):
        size = abs(each.constant)
        wanted = each.use in (Use.COMPARED, Use.CLAMPED) or (
            each.use is Use.ADDED and 0 < each.constant <= SMALL
        )
        if wanted and each.is_float and SCALES[0] < size < SCALES[1]:
            sizes.setdefault(10.0 ** (round(2 * math.log10(size)) / 2))
    return tuple(sizes)
