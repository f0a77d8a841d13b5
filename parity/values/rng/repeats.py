"""Equal parts of initial states: leaves, rows, layers, experts that start from the same numbers."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from parity.values.rng.distribution import Samples, as_numbers, start_finding
from parity.verdicts import Finding

CHANCE = 1e-9
"""Bound on the probability of any equal parts by chance; below it, equal parts are a finding."""
MOST_COUNTED = 65_536
WHOLE, KEYS = -2, -1
"""Placeholders for an axis: the whole leaf; the keys of the states."""


class Place(NamedTuple):
    """A leaf or one slice of it.

    Args:
        axis: axis of the slice; `WHOLE`, or `KEYS`: the leaf in the state of one key, the axis before the first.
        index: along the axis.
    """

    path: str
    axis: int = WHOLE
    index: int = 0

    def __str__(self) -> str:
        if self.axis == WHOLE:
            return self.path
        return f"key {self.index}" if self.axis == KEYS else f"{self.path}[{':, ' * self.axis}{self.index}]"


def compare_repeats(
    reference: Samples, candidate: Samples
) -> tuple[dict[str, Finding], dict[str, tuple[np.ndarray, ...]]]:
    """Returns findings for leaves and slices that are equal on one side only.

    Args:
        reference, candidate: initial states of several keys, along a first axis, under the same paths.

    Returns:
        The findings by leaf, and for each leaf the indices of its slices without those that repeat earlier ones.
    """
    axes = {path: _judged(leaf, candidate[path]) for path, leaf in reference.items()}
    left, right = (_firsts(side, axes) for side in (reference, candidate))
    places: dict[str, dict[int, list[Place]]] = {path: {} for path in axes}
    for place in left:
        places[place.path].setdefault(place.axis, []).append(place)
    findings = {
        path: _finding(differing[0], left, right)
        for path, by_axis in places.items()
        if (
            differing := [
                group for group in by_axis.values() if any(left[one] != right[one] for one in group)
            ]
        )
    }
    return findings, {
        path: _kept(reference[path].shape[1:], path, by_axis, left) for path, by_axis in places.items()
    }


def _judged(left: np.ndarray, right: np.ndarray) -> list[int]:
    """Returns the axes along which no two slices are equal by chance; none if a side is one number, not drawn."""
    if any(leaf.size and (leaf == leaf.flat[0]).all() for leaf in (left, right)):
        return []
    keys, *shape = left.shape
    single = min(_chance(left), _chance(right))
    size = math.prod(shape)
    lengths = {
        WHOLE: size * keys,
        KEYS: size,
        **{axis: size // length * keys for axis, length in enumerate(shape) if length > 1},
    }
    pairs = (sum(shape) + keys) ** 2
    return [axis for axis, length in lengths.items() if pairs * single**length < CHANCE]


def _chance(leaf: np.ndarray) -> float:
    """Returns an upper estimate of the probability that two numbers of a leaf are equal."""
    numbers = as_numbers(leaf).reshape(len(leaf), -1)[:, : MOST_COUNTED // len(leaf)]
    counts = np.unique(numbers, return_counts=True)[1].astype(np.float64)
    return min(1.0, (float((counts * (counts - 1)).sum()) + 10) / max(1, numbers.size * (numbers.size - 1)))


def _firsts(states: Samples, axes: Mapping[str, Sequence[int]]) -> dict[Place, Place]:
    """Returns for each leaf and slice the first place with the same numbers, in the states of all keys."""
    seen: dict[bytes, Place] = {}
    return {
        place: seen.setdefault(digest, place)
        for path in sorted(axes)
        for axis in axes[path]
        for place, digest in _digests(path, axis, states[path])
    }


def _digests(path: str, axis: int, leaf: np.ndarray) -> Iterator[tuple[Place, bytes]]:
    if axis == WHOLE:
        yield Place(path), _digest(leaf, leaf.shape)
        return
    for index, part in enumerate(np.moveaxis(leaf, axis + 1, 0)):
        yield Place(path, axis, index), _digest(part, path if axis == KEYS else part.shape)


def _digest(part: np.ndarray, kind: object) -> bytes:
    return hashlib.blake2b(repr((kind, part.dtype)).encode() + part.tobytes(), digest_size=16).digest()


def _kept(
    shape: tuple[int, ...], path: str, places: Mapping[int, Sequence[Place]], first: Mapping[Place, Place]
) -> tuple[np.ndarray, ...]:
    """Returns the indices of a leaf's slices that repeat no earlier one, axis by axis, in the form of `np.ix_`."""

    def along(axis: int) -> list[int]:
        repeats = {
            place.index
            for place in places.get(axis, ())
            if first[place].path == path and first[place].axis == axis and first[place] != place
        }
        return [index for index in range(shape[axis]) if index not in repeats]

    return np.ix_(*(along(axis) for axis in range(len(shape))))


def _finding(places: Sequence[Place], left: Mapping[Place, Place], right: Mapping[Place, Place]) -> Finding:
    advice = "draw, copy or tie the same parts on both sides"
    words = (_words(places, side) for side in (left, right))
    return start_finding(
        places[0].path, words, ("one draw in several places, or a copy of another part", advice)
    )


def _words(places: Sequence[Place], first: Mapping[Place, Place]) -> str:
    repeats = [place for place in places if first[place] != place]
    if not repeats:
        return "has no such equal part"
    if repeats[0].axis == KEYS:
        return "starts from the same numbers with every key"
    count = f", {len(repeats)} of {len(places)} slices repeat others" if len(places) > 1 else ""
    return f"{repeats[0]} equals {first[repeats[0]]}{count}"
