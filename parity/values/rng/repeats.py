"""Equal parts of initial states: leaves, rows, layers, experts that start from the same numbers."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        axis: axis of the slice; `WHOLE`, or `KEYS`: the leaf in the state of one key.
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
    reference: Sequence[Samples], candidate: Sequence[Samples]
) -> tuple[dict[str, Finding], dict[str, tuple[np.ndarray, ...]]]:
    """Returns findings for leaves and slices that are equal on one side only.

    Args:
        reference, candidate: initial states of several keys, under the same paths.

    Returns:
        The findings by leaf, and for each leaf the indices of its slices without those that repeat earlier ones.
    """
    axes = {
        path: _judged([[state[path] for state in side] for side in (reference, candidate)])
        for path in reference[0]
    }
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
        path: _kept(reference[0][path].shape, path, by_axis, left) for path, by_axis in places.items()
    }


def _judged(sides: Sequence[Sequence[np.ndarray]]) -> list[int]:
    """Returns the axes along which no two slices are equal by chance."""
    shape, keys = sides[0][0].shape, len(sides[0])
    single = min(_chance(arrays) for arrays in sides)
    size = math.prod(shape)
    lengths = {
        WHOLE: size * keys,
        KEYS: size,
        **{axis: size // length * keys for axis, length in enumerate(shape) if length > 1},
    }
    pairs = (sum(shape) + keys) ** 2
    return [axis for axis, length in lengths.items() if pairs * single**length < CHANCE]


def _chance(arrays: Sequence[np.ndarray]) -> float:
    """Returns an upper estimate of the probability that two numbers of a leaf are equal."""
    numbers = np.concatenate([as_numbers(array).ravel()[: MOST_COUNTED // len(arrays)] for array in arrays])
    counts = np.unique(numbers, return_counts=True)[1].astype(np.float64)
    return min(1.0, (float((counts * (counts - 1)).sum()) + 10) / max(1, numbers.size * (numbers.size - 1)))


def _firsts(states: Sequence[Samples], axes: Mapping[str, Sequence[int]]) -> dict[Place, Place]:
    """Returns for each leaf and slice the first place with the same numbers, in the states of all keys."""
    seen: dict[bytes, Place] = {}
    return {
        place: seen.setdefault(digest, place)
        for path in sorted(axes)
        for axis in axes[path]
        for place, digest in _digests(path, axis, [state[path] for state in states])
    }


def _digests(path: str, axis: int, arrays: Sequence[np.ndarray]) -> Iterator[tuple[Place, bytes]]:
    if axis == WHOLE:
        yield Place(path), _digest(arrays[0].shape, arrays)
    elif axis == KEYS:
        for index, array in enumerate(arrays):
            yield Place(path, KEYS, index), _digest((path, "key"), [array])
    else:
        cut = [np.ascontiguousarray(np.moveaxis(array, axis, 0)) for array in arrays]
        for index in range(len(cut[0])):
            yield Place(path, axis, index), _digest(cut[0].shape[1:], [array[index] for array in cut])


def _digest(kind: object, parts: Iterable[np.ndarray]) -> bytes:
    digest = hashlib.blake2b(repr(kind).encode(), digest_size=16)
    for part in parts:
        digest.update(part.dtype.str.encode() + part.tobytes())
    return digest.digest()


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
    advice = "draw each part from a key of its own on both sides, or tie the same parts on both"
    words = (_words(places, side) for side in (left, right))
    return start_finding(places[0].path, words, ("one draw in several places", advice))


def _words(places: Sequence[Place], first: Mapping[Place, Place]) -> str:
    """Returns a description of the repeats among the slices of one leaf along one axis."""
    repeats = [place for place in places if first[place] != place]
    if not repeats:
        return "has no such equal part"
    if repeats[0].axis == KEYS:
        return "starts from the same numbers with every key"
    count = f", {len(repeats)} of {len(places)} slices repeat others" if len(places) > 1 else ""
    return f"{repeats[0]} equals {first[repeats[0]]}{count}"
