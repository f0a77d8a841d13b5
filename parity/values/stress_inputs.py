"""States and batches that expose differences of programs, and the deviations that exceed the reference's own noise."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.builds.tree import Leaf, Role
from parity.values.ladder import Deviation, deviation
from parity.values.noise import finite_norm, is_float, map_floats

Flat = Mapping[str, np.ndarray]
COARSE = 10.0
"""Bound on a leaf's deviation, as a multiple of its change when the reference is perturbed."""
SHAKEN = 100
"""Size of a perturbation in units in the last place: more than reordered rounding, so that instability shows."""
NEGLIGIBLE = 1e-3
"""A leaf this small relative to the largest of its group is left by cancellation, as behind a saturated softmax."""
CHAOS = 0.05
"""Perturbations that move a leaf by more than this make its numbers useless for comparison."""
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
        return map_floats(lambda array: self._scaled(array, self.inputs, rng, constants), flat)

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

    return map_floats(shaken, flat)


def resized(factor: float) -> Callable[[Flat, np.random.Generator], dict[str, np.ndarray]]:
    """Returns a function that multiplies every float by a factor."""
    return lambda flat, _: map_floats(lambda array: (array * factor).astype(array.dtype), flat)


def measured_difference(
    reference: Flat, candidate: Flat, nudged: Callable[[], Iterable[Flat]], sizes: Mapping[str, float]
) -> list[tuple[Deviation, float]]:
    """Returns the leaves that differ by more than the reference's own noise, with their deviation and that noise.

    Non-finite entries must be at the same places on both sides, unless perturbations move them too.

    Args:
        nudged: yields the reference's results from perturbed states and batches; read only as long as leaves differ,
            because more of them never explain less.
        sizes: norms to which rounding is relative; if empty, the leaves' own, and small leaves are left out.
    """
    differ = [path for path in reference if deviation(path, reference[path], candidate[path]) is not None]
    norms = [finite_norm(array) for array in reference.values() if differ and is_float(array)]
    least = 0.0 if sizes else NEGLIGIBLE * max(norms, default=0.0)
    wanted = [
        path for path in differ if not is_float(reference[path]) or finite_norm(reference[path]) >= least
    ]
    found: dict[str, tuple[Deviation, float]] = {}
    again: list[Flat] = []
    for run in nudged() if wanted else ():
        again.append(run)
        found = {
            path: off
            for path in wanted
            if (off := _off(path, reference[path], candidate[path], again, sizes.get(path, 0.0)))
        }
        wanted = [*found]
        if not wanted:
            break
    return [*found.values()]


def one_sided(path: str, worst: tuple[int, ...], sides: tuple[np.ndarray, np.ndarray]) -> Deviation:
    """Returns the deviation of a leaf with an entry that is finite on one side only."""
    left, right = (str(side[worst]) for side in sides)
    return Deviation(
        path=path, relative=float("inf"), worst=worst, note=ONE_SIDED, reference=left, candidate=right
    )


def _off(
    path: str, left: np.ndarray, right: np.ndarray, again: Sequence[Flat], size: float
) -> tuple[Deviation, float] | None:
    """Returns the deviation of a leaf, with the noise; None if the reference's noise explains it."""
    if not is_float(left):
        off = deviation(path, left, right)
        return (off, 0.0) if off and all(np.array_equal(left, run[path]) for run in again) else None
    sides = [left, right, *(run[path] for run in again)]
    finite, other, *nudged = [np.isfinite(side.astype(np.float64)) for side in sides]
    if any((finite != side).any() for side in nudged):
        return None
    if (finite != other).any():
        place = tuple(int(index) for index in np.argwhere(finite != other)[0])
        return one_sided(path, place, (left, right)), 0.0
    kept, moved, *runs = [np.where(finite, side, 0).astype(left.dtype) for side in sides]
    is_small = finite_norm(kept) < size

    def far(other: np.ndarray) -> float:
        if is_small:
            return float(np.linalg.norm(kept.astype(np.float64) - other)) / size
        gone = deviation(path, kept, other, place=False)
        return gone.relative if gone else 0.0

    relative, noise = far(moved), max([*map(far, runs), float(jnp.finfo(left.dtype).eps)])
    # Relative to zeros, any rounding is infinitely large.
    beyond = np.isfinite(relative) and noise < CHAOS and relative > COARSE * noise
    off = deviation(path, kept, moved) if beyond else None
    return (dataclasses.replace(off, relative=relative), noise) if off else None
