"""Random states, the noise floor and the float64 reference, on which the ladder is based."""

import statistics
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.builds.tree import Leaf, Role
from parity.values.ladder import MINOR, deviation, filled, minor

Flat = Mapping[str, np.ndarray]
DRAWS = 3
"""Number of perturbed runs of the reference."""


def is_float(array: np.ndarray) -> bool:
    """True if the array holds floats, including bfloat16 and similar dtypes."""
    return jnp.issubdtype(array.dtype, np.floating)


def is_mask(array: np.ndarray) -> bool:
    """True for an array of booleans, or of floats that are all zero or one."""
    is_bit = is_float(array) and array.ndim and bool(((array == 0) | (array == 1)).all())
    return array.dtype == bool or bool(is_bit)


def is_distribution(array: np.ndarray) -> bool:
    """True for floats that are not negative and add up to one along the last axis, as probabilities do."""
    if not (is_float(array) and array.ndim and array.shape[-1] > 1 and (array >= 0).all()):
        return False
    return bool(np.allclose(np.sum(array, -1, np.float64), 1, rtol=0, atol=16 * jnp.finfo(array.dtype).eps))


def resolution(array: np.ndarray) -> float:
    """Returns half a unit in the last place of a number near one; 0 for integers."""
    return float(jnp.finfo(array.dtype).eps) / 2 if is_float(array) else 0.0


def finite_norm(array: np.ndarray) -> float:
    """Returns the norm of the finite entries of a float array, without those that a mask fills."""
    wide = np.asarray(array, np.float64)
    return float(np.linalg.norm(np.where(np.isfinite(wide) & ~filled(array), wide, 0.0)))


def randomise(state: Flat, leaves: Mapping[str, Leaf], seed: int) -> dict[str, np.ndarray]:
    """Returns an initial state with every float parameter and buffer moved off its initial value.

    Scales of one and biases of zero hide bugs; each entry becomes ``w * (1 + 0.1 n) + 0.02 n'`` with standard normal
    ``n, n'``. Optimizer state, counters and keys stay: the first step fills them.
    """
    rng = np.random.default_rng(seed)
    moved = dict(state)
    for path in sorted(state):
        if is_float(state[path]) and leaves[path].role in (Role.PARAMS, Role.STATE):
            wide = state[path].astype(np.float64)
            scale, shift = rng.standard_normal((2, *wide.shape))
            moved[path] = np.asarray(wide * (1 + 0.1 * scale) + 0.02 * shift).astype(state[path].dtype)
    return moved


def nudge(flat: Flat, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns ``flat`` with every float moved one unit in the last place, up or down at random.

    Masks, zeros and non-finite entries stay, and no entry leaves the finite range.
    """
    nudged = {}
    for path, array in flat.items():
        if is_float(array) and not is_mask(array):
            up = rng.integers(0, 2, array.shape).astype(bool)
            limit = jnp.finfo(array.dtype).max
            limits = np.where(up, limit, -limit).astype(array.dtype)
            stays = (array == 0) | ~np.isfinite(array)
            array = np.where(stays, array, np.nextafter(array, limits)).astype(array.dtype)
        nudged[path] = array
    return nudged


def measure_floor(
    reference: Flat, nudged: Sequence[Flat], of_runs: Callable[[Sequence[float]], float] = statistics.median
) -> dict[str, float]:
    """Returns the noise of each leaf: the relative deviation of perturbed runs of the reference from the original.

    It is the median of the runs, or their maximum, at least half a unit in the last place; also of minor entries, if
    any.
    """
    floor = {}
    for path, array in reference.items():
        found = [deviation(path, array, again[path], place=False) for again in nudged]
        sizes = {path: [off.relative if off else 0.0 for off in found]}
        if is_float(array) and minor(array).any():
            sizes[path + MINOR] = [off.minor if off else 0.0 for off in found]
        floor |= {name: max(of_runs(each), resolution(array)) for name, each in sizes.items()}
    return floor


def map_floats(function: Callable[[np.ndarray], np.ndarray], flat: Flat) -> dict[str, np.ndarray]:
    """Returns ``flat`` with a function applied to every array of floats."""
    return {path: function(array) if is_float(array) else array for path, array in flat.items()}


def to_float64(flat: Flat) -> dict[str, np.ndarray]:
    """Returns ``flat`` with floats widened to float64."""
    return map_floats(lambda array: array.astype(np.float64), flat)
