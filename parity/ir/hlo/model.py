"""Loops of a program: a loop, its place in the tree, the tree, and the iterations of a counted loop."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

from parity.ir.location import SourceLocation

__all__ = ["Leaf", "Loop", "LoopTree", "Side", "count_trips"]

Side = tuple[int | None, int]
"""The slot of a carry and an offset to it, or None and a constant."""
_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One array that a loop stacks, iteration by iteration.

    Args:
        shape: dtype and dimensions of the whole stack, such as ``f32[5,8,8]``.
        bytes: its size in bytes.
        provenance: the operation that writes it.
    """

    shape: str
    bytes: int
    provenance: SourceLocation

    def __str__(self) -> str:
        return f"{self.shape} ({self.bytes:,} bytes, {self.provenance.summary})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """One while loop with the loops inside.

    Args:
        trips: iterations, or None if they depend on data.
        carries: number of arrays carried, invariant ones included.
        carry_bytes: bytes of all of them, counted without layout padding.
        kept_bytes: bytes of those that no iteration changes.
        provenance: source of the loop.
        stacked: carries written once per iteration at the loop counter (the ys of a scan); lowered only.
        passthrough: the stacked ones that are a scanned input, unchanged except for layout and dtype.
        inner: the loops directly inside.
    """

    trips: int | None
    carries: int
    carry_bytes: int
    kept_bytes: int
    provenance: SourceLocation
    stacked: tuple[Leaf, ...] = ()
    passthrough: tuple[Leaf, ...] = ()
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
            tuple(sorted(leaf.shape for leaf in self.stacked)),
            tuple(sorted(leaf.shape for leaf in self.passthrough)),
            tuple(sorted(loop.signature for loop in self.inner)),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLoop:
    """A loop in its tree.

    Args:
        path: positions from the root, such as ``0.2``.
        depth: 0 for an outermost loop.
        times: executions of the whole loop, the product of the trips around it; None if unknown.
        loop: the loop.
    """

    path: str
    depth: int
    times: int | None
    loop: Loop


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopTree:
    """All loops of one program at one stage.

    Args:
        stage: ``lowered`` or ``optimised``.
        loops: the outermost loops in program order.
        operations: operations that compute something; 0 makes a comparison vacuous.
        fusions: number of fused computations called, which are not loops; 0 before optimisation.
    """

    stage: str
    loops: tuple[Loop, ...]
    operations: int
    fusions: int = 0

    @property
    def count(self) -> int:
        """Number of loops, including nested ones; each call site counts separately."""
        return sum(loop.count for loop in self.loops)

    @property
    def unknown(self) -> int:
        """Number of loops whose trip count is not known."""
        return sum(place.loop.trips is None for place in self.walk())

    def walk(self) -> Iterator[PlacedLoop]:
        """Yields every loop in program order, outer before inner."""
        yield from _walk(self.loops, "", 0, 1)


def _walk(loops: tuple[Loop, ...], prefix: str, depth: int, times: int | None) -> Iterator[PlacedLoop]:
    for index, loop in enumerate(loops):
        path = f"{prefix}{index}"
        yield PlacedLoop(path=path, depth=depth, times=times, loop=loop)
        inside = None if times is None or loop.trips is None else times * loop.trips
        yield from _walk(loop.inner, f"{path}.", depth + 1, inside)


def count_trips(
    sides: Sequence[Side | None],
    direction: str,
    step: Callable[[int], int | None],
    start: Callable[[int], int | None],
) -> int | None:
    """Returns the iterations of a loop that runs while ``sides[0] <direction> sides[1]``.

    Args:
        sides: the slot of a carry and an offset, or None and a constant; None if a side is neither.
        direction: ``LT``, ``LE``, ``GT``, ``GE`` or ``NE``.
        step: returns the increment of a carry per iteration; 0 if unchanged, None if it is not a constant.
        start: returns the initial value of a carry; None if it is not a constant.

    Returns:
        The count, or None for a loop that does not end or has another kind of condition.
    """
    known = [_without_fixed_carry(side, step, start) for side in sides]
    if None in known or direction not in _SWAPPED:
        return None
    (slot, shift), (other, bound) = known  # pyright: ignore[reportGeneralTypeIssues]
    if slot is None:
        slot, shift, other, bound, direction = other, bound, slot, shift, _SWAPPED[direction]
    if slot is None or other is not None:
        return None
    by, first = step(slot), start(slot)
    return _count(first, by, bound - shift, direction) if by and first is not None else None


def _without_fixed_carry(side: Side | None, step: Callable, start: Callable) -> Side | None:
    """Replaces a carry that the body never changes with its initial constant."""
    if side is None or side[0] is None or step(side[0]) != 0:
        return side
    first = start(side[0])
    return None if first is None else (None, first + side[1])


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
