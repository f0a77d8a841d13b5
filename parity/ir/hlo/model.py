"""Data model of the loops of a program: a loop, its place in the tree, the tree."""

import dataclasses
import functools
from collections.abc import Iterator

from parity.ir.location import SourceLocation

__all__ = ["Leaf", "Loop", "LoopTree", "PlacedLoop"]


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
        provenance: source of the loop.
        stacked: carries written once per iteration at the loop counter (the ys of a scan); lowered only.
        passthrough: the stacked ones that are a scanned input, unchanged except for layout and dtype.
        inner: the loops directly inside.
    """

    trips: int | None
    carries: int
    carry_bytes: int
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
