"""Comparison of runs that start from different counters: deviations beyond the noise of a count.

A schedule is computed in floats from a count. Its error is relative to its largest value, plus the effect of the
count's float resolution. Near the end of a cosine, only this error is left.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.values.ladder import FLOOR_FACTOR, Deviation, deviation
from parity.values.noise import finite_norm, is_float

__all__ = ["off_over_counts"]

RESOLUTION = float(jnp.finfo(jnp.float32).eps)
"""Relative resolution of a count converted to a float."""
Flat = Mapping[str, np.ndarray]


def off_over_counts(
    counts: Sequence[int],
    reference: Sequence[Flat],
    candidate: Sequence[Flat],
    nudged: Callable[[int], Flat],
) -> list[tuple[int, Deviation, float]]:
    """Returns the leaves that differ beyond the noise: the start with the largest deviation, the deviation, the noise.

    Args:
        counts: initial values of the counters.
        reference, candidate: results of both sides for each start.
        nudged: returns the reference's results from perturbed numbers, given the index of a start.
    """
    paths = [path for path in reference[0] if all(path in run for run in (*reference, *candidate))]
    found = []
    for path in paths:
        each = [
            off
            for start in range(len(counts))
            if (off := _off(path, start, counts, (reference, candidate, nudged))) is not None
        ]
        if each:
            found.append(max(each, key=lambda off: off[1].relative / off[2] if off[2] else float("inf")))
    return found


def _off(path: str, start: int, counts: Sequence[int], runs: tuple) -> tuple[int, Deviation, float] | None:
    reference, candidate, nudged = runs
    left, right = reference[start][path], candidate[start][path]
    off = deviation(path, left, right)
    if off is None:
        return None
    again = nudged(start)[path]
    if not is_float(left):
        return (start, off, 0.0) if np.array_equal(left, again) else None
    finite = [np.isfinite(np.asarray(side, np.float64)) for side in (left, right, again)]
    if (finite[0] != finite[1]).any():
        moved = (finite[0] != finite[2]).any()
        return None if moved else (start, dataclasses.replace(off, note="finite on one side only"), 0.0)
    scale = max(finite_norm(run[path]) for run in reference)
    noise = max(
        RESOLUTION * scale,
        float(jnp.finfo(left.dtype).eps) * scale,
        _distance(left, again),
        RESOLUTION * counts[start] * _slope(path, start, counts, reference),
    )
    error = _distance(left, right)
    if not error > FLOOR_FACTOR * noise:
        return None
    return start, dataclasses.replace(off, relative=error / scale), noise / scale


def _slope(path: str, start: int, counts: Sequence[int], reference: Sequence[Flat]) -> float:
    """Returns the change of a leaf per count, towards the nearest other start."""
    others = [other for other in range(len(counts)) if counts[other] != counts[start]]
    if not others:
        return 0.0
    nearest = min(others, key=lambda other: abs(counts[other] - counts[start]))
    return _distance(reference[start][path], reference[nearest][path]) / abs(counts[nearest] - counts[start])


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the norm of the difference over the entries that are finite on both sides."""
    wide = [np.asarray(side, np.float64) for side in (one, other)]
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    return float(np.linalg.norm(np.where(finite, wide[0], 0.0) - np.where(finite, wide[1], 0.0)))
