"""Pairs arguments and results for the prover if the weight map moves numbers."""

import dataclasses
from collections.abc import Mapping, Sequence

from parity.builds.build import Group
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import (
    Concat,
    Identity,
    Permute,
    Reshape,
    Split,
    Stack,
    StackGrid,
    Unstack,
)
from parity.compare.pairing import (
    Pairing,
    pair_positions,
    result_positions,
    state_arguments,
    without_counters,
)
from parity.compare.side import Side
from parity.prove import WeightView, WeightViews, loop_counts_differ

__all__ = ["pair_moved", "pair_programs"]

Step = tuple[str, tuple[int, ...]]


def pair_programs(reference: Side, candidate: Side, weights: WeightMap) -> Pairing | None:
    """Pairs arguments and results of two programs under any map, without counters that no result needs.

    Args:
        reference, candidate: the two sides.
        weights: their map.

    Returns:
        The pairs; None if the map moves numbers and `pair_moved` returns None, or loop counts differ.
    """
    sides = (reference, candidate)
    if weights.is_identity:
        pairing = pair_positions(*sides, weights)
    elif (
        loop_counts_differ(reference.operations, candidate.operations)
        or (pairing := pair_moved(*sides, weights)) is None
    ):
        return None
    return without_counters(pairing, sides, weights)


def pair_moved(reference: Side, candidate: Side, weights: WeightMap) -> Pairing | None:
    """Pairs the entries that are equal on both sides, and describes how the other entries are transformed.

    Args:
        reference, candidate: the two sides.
        weights: their map.

    Returns:
        The pairs and the transforms; None if a transform is not one of `parity.builds.weights.transforms`.
    """
    moving = [entry for entry in weights.entries if not _is_plain(entry)]
    sides = (reference, candidate)
    read = [state_arguments(side) for side in sides]
    arguments = [_moved(entry, read, sides, "") for entry in moving]
    results = []
    for group in sorted(reference.traced.out_info):
        if Group(group).by_leaf:
            given = [
                {path: at for name, at in result_positions(side, {}).items() if (path := _path(name, group))}
                for side in sides
            ]
            results += [_moved(entry, given, sides, f"{group} ") for entry in moving]
    if None in arguments or None in results:
        return None
    pairing = pair_positions(reference, candidate, weights, moving)
    moves = WeightViews(arguments=_kept(arguments), results=_kept(results))
    return dataclasses.replace(pairing, alone=dataclasses.replace(pairing.alone, moves=moves))


def _is_plain(entry: Entry) -> bool:
    return isinstance(entry.transform, Identity) and len(entry.reference) == 1


def _path(name: str, group: str) -> str:
    return name.removeprefix(f"{group} ") if name.startswith(f"{group} ") else ""


def _kept(found: list[WeightView | None]) -> tuple[WeightView, ...]:
    return tuple(move for move in found if move is not None and (move.positions(0) or move.positions(1)))


def _moved(
    entry: Entry, positions: Sequence[Mapping[str, int]], sides: tuple[Side, Side], prefix: str
) -> WeightView | None:
    """Returns the transform of one entry; None if it is not known."""
    transform = entry.transform
    side = int(isinstance(transform, Unstack | Split))
    parts, wholes = (entry.candidate, entry.reference) if side else (entry.reference, entry.candidate)
    shapes = tuple(sides[side].build.leaves[path].shape for path in parts)
    steps = _steps(transform, shapes, sides[1 - side].build.leaves[wholes[0]].shape)
    if steps is None or len(wholes) != 1:
        return None
    return WeightView(
        name=f"{prefix}{wholes[0]}",
        side=side,
        parts=tuple(positions[side].get(path) for path in parts),
        shapes=shapes,
        whole=positions[1 - side].get(wholes[0]),
        steps=steps,
    )


def _steps(
    transform: object, shapes: tuple[tuple[int, ...], ...], whole: tuple[int, ...]
) -> tuple[Step, ...] | None:
    """Returns the steps that make the whole from its parts."""
    shape = shapes[0]
    if isinstance(transform, Permute):
        return (("transpose", tuple(axis % len(shape) for axis in transform.order)),)
    if isinstance(transform, Reshape):
        return (("reshape", whole),)
    if isinstance(transform, Stack | Unstack):
        axis = transform.axis % (len(shape) + 1)
        return (("reshape", (*shape[:axis], 1, *shape[axis:])), ("join", (axis,)))
    if isinstance(transform, StackGrid):
        return (("reshape", (1, *shape)), ("join", (0,)), ("reshape", whole))
    if isinstance(transform, Concat | Split):
        return (("join", (transform.axis % len(shape),)),)
    return None
