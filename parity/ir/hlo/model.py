"""Loops of a program: a loop, its place in the tree, the tree, and the iterations of a counted loop."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

from parity.ir.hlo.hlo import Shape
from parity.ir.location import SourceLocation

_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """One while loop with the loops inside.

    Args:
        trips: iterations, or None if they depend on data.
        carries: number of arrays carried, invariant ones included.
        carry_bytes: bytes of all of them, counted without layout padding.
        kept_bytes: bytes of those that no iteration changes.
        elements: element types of all of them, sorted; lowered only.
        stacked: whole carries written once per iteration at the loop counter (the ys of a scan); lowered only.
    """

    trips: int | None
    carries: int
    carry_bytes: int
    kept_bytes: int
    provenance: SourceLocation
    elements: tuple[str, ...] = ()
    stacked: tuple[Shape, ...] = ()
    inner: tuple["Loop", ...] = ()

    @property
    def count(self) -> int:
        """Number of loops: this one and all loops inside."""
        return 1 + sum(loop.count for loop in self.inner)

    @functools.cached_property
    def signature(self) -> tuple:
        """Comparison key: equal for two loops that differ only in provenance and order."""
        return (
            -1 if self.trips is None else self.trips,
            self.carries,
            self.carry_bytes,
            tuple(sorted(map(str, self.stacked))),
            tuple(sorted(loop.signature for loop in self.inner)),
        )


PlacedLoop = tuple[str, int | None, Loop]
"""A loop in its tree: positions from the root, such as ``0.2``; executions of the whole loop, the product of the trips
around it, or None if they are unknown; the loop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopTree:
    """All loops of one program at one stage.

    Args:
        stage: ``lowered`` or ``optimised``.
        loops: the outermost loops in program order.
        computes: True if an operation computes something; else a comparison is vacuous.
        fusions: number of fused computations called, which are not loops; 0 before optimisation.
    """

    stage: str
    loops: tuple[Loop, ...]
    computes: bool
    fusions: int = 0

    @property
    def count(self) -> int:
        """Number of loops, including nested ones; each call site counts separately."""
        return sum(loop.count for loop in self.loops)

    def walk(self) -> Iterator[PlacedLoop]:
        """Yields every loop in program order, outer before inner."""
        yield from _walk(self.loops, "", 1)


def _walk(loops: tuple[Loop, ...], prefix: str, times: int | None) -> Iterator[PlacedLoop]:
    for index, loop in enumerate(loops):
        path = f"{prefix}{index}"
        yield path, times, loop
        inside = None if times is None or loop.trips is None else times * loop.trips
        yield from _walk(loop.inner, f"{path}.", inside)


@dataclasses.dataclass(frozen=True, slots=True)
class Affine:
    """``factor * carry[slot] + offset``; a constant has factor 0 and slot -1."""

    slot: int
    factor: int
    offset: int


def constant(number: int) -> Affine:
    """Returns a constant."""
    return Affine(-1, 0, number)


def fold(name: str, left: Affine | None, right: Affine | None) -> Affine | None:
    """Returns the sum, difference or product of two integers, by its ``name``; None if it is not affine."""
    if left is None or right is None:
        return None
    if name == "multiply":
        if left.factor and right.factor:
            return None
        value, times = (left, right.offset) if left.factor else (right, left.offset)
        return Affine(value.slot if times else -1, value.factor * times, value.offset * times)
    sign = -1 if name == "subtract" else 1
    if left.factor and right.factor and left.slot != right.slot:
        return None
    factor = left.factor + sign * right.factor
    slot = max(left.slot, right.slot) if factor else -1
    return Affine(slot, factor, left.offset + sign * right.offset)


def count_trips(
    sides: Sequence[Affine | None],
    direction: str,
    step: Callable[[int], int | None],
    start: Callable[[int], int | None],
) -> int | None:
    """Returns the iterations of a loop that runs while ``sides[0] <direction> sides[1]``; None if unknown or endless.

    Args:
        sides: both sides of the condition; None if a side is not affine.
        direction: ``LT``, ``LE``, ``GT``, ``GE`` or ``NE``.
        step: returns the increment of a carry per iteration; 0 if unchanged, None if it is not a constant.
        start: returns the initial value of a carry; None if it is not a constant.
    """

    def without_fixed_carry(side: Affine | None) -> Affine | None:
        if side is None or not side.factor or step(side.slot) != 0:
            return side
        first = start(side.slot)
        return None if first is None else constant(side.factor * first + side.offset)

    left, right = map(without_fixed_carry, sides)
    if left is None or right is None or direction not in _SWAPPED:
        return None
    if not left.factor:
        left, right, direction = right, left, _SWAPPED[direction]
    if left.factor != 1 or right.factor:
        return None
    by, first = step(left.slot), start(left.slot)
    return _count(first, by, right.offset - left.offset, direction) if by and first is not None else None


def _count(start: int, step: int, limit: int, direction: str) -> int | None:
    """Returns the iterations of ``for (i = start; i <direction> limit; i += step)``."""
    if direction in ("GT", "GE"):
        start, step, limit, direction = -start, -step, -limit, _SWAPPED[direction]
    distance = limit - start + (direction == "LE")
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None
