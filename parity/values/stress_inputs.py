"""States and batches that expose differences of programs, and the deviations that exceed the reference's own noise."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.builds.tree import Leaf, Role
from parity.values.ladder import FLOOR_FACTOR, Deviation, deviation
from parity.values.noise import finite_norm, is_float

Flat = Mapping[str, np.ndarray]
COARSE = 10.0
"""Bound on a leaf's deviation, as a multiple of its change when the reference is perturbed."""
SHAKEN = 100
"""Size of a perturbation in units in the last place: more than reordered rounding, so that instability shows."""
NEGLIGIBLE = 1e-3
"""A leaf this small relative to the largest of its group is left by cancellation, as behind a saturated softmax."""
CHAOS = 0.05
"""Perturbations that move a leaf by more than this make its numbers useless for comparison."""
COUNT_RESOLUTION = float(jnp.finfo(jnp.float32).eps)
"""Relative resolution of a count converted to a float."""
ONE_SIDED = "finite on one side only"


@dataclasses.dataclass(frozen=True)
class StressKind:
    """One kind of stress inputs.

    Args:
        parameters, inputs: range of the power of ten that scales the leaves of the state, or the batch.
        count: initial value of the optimizer's counters.
        by_entry: True if each entry has another factor, False if all entries of a leaf share one.
        saturates: True if a softmax may saturate, so that gradients cancel and optimizers step on the residue.
        edges: share of entries that become zero, tie with another, or are close to a constant of the programs.
    """

    name: str
    parameters: tuple[float, float]
    inputs: tuple[float, float]
    count: int
    by_entry: bool = False
    saturates: bool = False
    edges: float = 0.0

    def state(
        self, flat: Flat, leaves: Mapping[str, Leaf], constants: Sequence[float]
    ) -> dict[str, np.ndarray]:
        """Returns a state with scaled parameters, nonzero moments and changed counters."""
        rng, scaled = np.random.default_rng(11), dict(flat)
        for path in sorted(flat):
            array, role = flat[path], leaves[path].role
            if is_float(array) and role is Role.OPTIMIZER:
                if not array.ndim:  # a rate, a decay or an epsilon that the state carries
                    continue
                moment = np.abs(rng.standard_normal(array.shape))
                moment = moment * self._factors(self.parameters, rng, array.shape) * 1e-3
                scaled[path] = moment.astype(array.dtype)
            elif is_float(array):
                scaled[path] = self._scaled(array, self.parameters, rng, constants)
            elif role is Role.OPTIMIZER and array.ndim == 0 and array.dtype.kind in "iu":
                scaled[path] = np.asarray(self.count, array.dtype)
        return scaled

    def batch(self, flat: Flat, constants: Sequence[float]) -> dict[str, np.ndarray]:
        """Returns a batch with its floats scaled; integers stay, because they are indices."""
        rng = np.random.default_rng(13)
        return {
            path: self._scaled(array, self.inputs, rng, constants) if is_float(array) else array
            for path, array in flat.items()
        }

    def _factors(
        self, decades: tuple[float, float], rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray:
        return 10.0 ** rng.uniform(*decades, shape if self.by_entry else ())

    def _scaled(
        self,
        array: np.ndarray,
        decades: tuple[float, float],
        rng: np.random.Generator,
        constants: Sequence[float],
    ) -> np.ndarray:
        limit = float(jnp.finfo(array.dtype).max)
        wide = array.astype(np.float64) * self._factors(decades, rng, array.shape)
        if self.edges and array.size > 1:
            flat, chosen = wide.reshape(-1), rng.random(array.size) < self.edges
            nearby = [0.0, *(c * (1 + side) for c in constants for side in (-1e-3, 0.0, 1e-3))]
            picks = rng.choice(np.asarray([*nearby, float(flat[0])]), array.size)
            wide = np.where(chosen, picks, flat).reshape(array.shape)
        return np.clip(wide, -limit, limit).astype(array.dtype)


EXTREMES = (
    StressKind("leaves over decades", (-1.5, 1.0), (-1.5, 1.5), count=7),
    StressKind("large numbers", (0.5, 1.0), (2.0, 3.0), count=1_000, saturates=True),
    StressKind("tiny numbers", (-3.0, -2.0), (-4.0, -3.0), count=100_000),
    StressKind("entries over decades", (-1, 0.5), (-2, 2), count=50, by_entry=True, saturates=True),
    StressKind("zeros, ties and the programs' constants", (0, 0.1), (0, 0.1), count=0, edges=0.2),
)


def perturb(flat: Flat, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns ``flat`` with every float moved by about `SHAKEN` units in the last place; zeros stay."""

    def shaken(array: np.ndarray) -> np.ndarray:
        size = SHAKEN * float(jnp.finfo(array.dtype).eps)
        limit = float(jnp.finfo(array.dtype).max)
        moved = array.astype(np.float64) * (1 + min(size, 0.05) * rng.standard_normal(array.shape))
        return np.clip(moved, -limit, limit).astype(array.dtype)

    return {path: shaken(array) if is_float(array) else array for path, array in flat.items()}


def resized(factor: float) -> Callable[[Flat, np.random.Generator], dict[str, np.ndarray]]:
    """Returns a function that multiplies every float by a factor."""
    return lambda flat, _: {
        path: (array * factor).astype(array.dtype) if is_float(array) else array
        for path, array in flat.items()
    }


def measured_difference(
    reference: Flat, candidate: Flat, nudged: Callable[[], Sequence[Flat]]
) -> list[tuple[Deviation, float]]:
    """Returns the leaves that differ by more than the reference's own noise, with their deviation and that noise.

    Non-finite entries must be at the same places on both sides, unless perturbations move them too.

    Args:
        nudged: returns the reference's results from perturbed states and batches; called only if bits differ.
    """
    found = []
    differ = [path for path in reference if deviation(path, reference[path], candidate[path]) is not None]
    norms = [finite_norm(array) for array in reference.values() if differ and is_float(array)]
    least = NEGLIGIBLE * max(norms, default=0.0)
    for path in differ:
        left, again = reference[path], [run[path] for run in nudged()]
        if not is_float(left):
            off = deviation(path, left, candidate[path])
            found += [(off, 0.0)] if off and all(np.array_equal(left, run) for run in again) else []
        elif finite_norm(left) >= least and (off := _off(path, left, candidate[path], again)):
            found.append(off)
    return found


def one_sided(path: str, worst: tuple[int, ...], sides: tuple[np.ndarray, np.ndarray]) -> Deviation:
    """Returns the deviation of a leaf with an entry that is finite on one side only."""
    left, right = (str(side[worst]) for side in sides)
    return Deviation(
        path=path, relative=float("inf"), worst=worst, note=ONE_SIDED, reference=left, candidate=right
    )


def _off(
    path: str, left: np.ndarray, right: np.ndarray, again: Sequence[np.ndarray]
) -> tuple[Deviation, float] | None:
    """Returns the deviation of a float leaf, with the noise; None if the reference's noise explains it."""
    finite, other, *nudged = [np.isfinite(side.astype(np.float64)) for side in (left, right, *again)]
    if any((finite != side).any() for side in nudged):
        return None
    if (finite != other).any():
        place = tuple(int(index) for index in np.argwhere(finite != other)[0])
        return one_sided(path, place, (left, right)), 0.0
    kept, moved, *runs = [np.where(finite, side, 0).astype(left.dtype) for side in (left, right, *again)]
    off = deviation(path, kept, moved)
    noises = [gone.relative for run in runs if (gone := deviation(path, kept, run))]
    noise = max([*noises, float(jnp.finfo(left.dtype).eps)])
    covered = off is not None and np.isfinite(
        off.relative
    )  # relative to zeros, any rounding is infinitely large
    return (off, noise) if off and covered and noise < CHAOS and off.relative > COARSE * noise else None


def off_over_counts(
    counts: Sequence[int], reference: Sequence[Flat], candidate: Sequence[Flat], nudged: Callable[[int], Flat]
) -> list[tuple[int, Deviation, float]]:
    """Returns the leaves that differ beyond the noise: the start with the largest deviation, the deviation, the noise.

    A schedule is computed in floats from a count. Its error is relative to its largest value, plus the effect of the
    count's float resolution. Near the end of a cosine, only this error is left.

    Args:
        nudged: returns the reference's results from perturbed numbers, given the index of a start.
    """
    paths = [path for path in reference[0] if all(path in run for run in (*reference, *candidate))]
    found = []
    for path in paths:
        each = [
            off
            for start in range(len(counts))
            if (off := _off_at(path, start, counts, (reference, candidate, nudged))) is not None
        ]
        if each:
            found.append(max(each, key=lambda off: off[1].relative / off[2] if off[2] else float("inf")))
    return found


def _off_at(path: str, start: int, counts: Sequence[int], runs: tuple) -> tuple[int, Deviation, float] | None:
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
        return None if moved else (start, dataclasses.replace(off, note=ONE_SIDED), 0.0)
    scale = max(finite_norm(run[path]) for run in reference)
    noise = max(
        COUNT_RESOLUTION * scale,
        float(jnp.finfo(left.dtype).eps) * scale,
        _distance(left, again),
        COUNT_RESOLUTION * counts[start] * _slope(path, start, counts, reference),
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
