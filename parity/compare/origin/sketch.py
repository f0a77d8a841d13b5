"""Sketches of arrays: a few numbers that estimate the distance of two arrays of one size, without keeping either."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PROJECTIONS = 8
"""Number of random projections; the mean of their squares estimates the squared distance to within a third."""
MASKING = 1e6
"""Entries of at least this magnitude count as infinities, as in masks: they would dominate a norm."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sketch:
    """Summary of an array.

    Args:
        kind: size, kind of numbers, and a hash of the positions of infinite, huge and NaN entries; for integers,
            booleans and keys a hash of the values. Different kinds are never compared.
        projected: the array's random projections, in float64.
        norm: its Frobenius norm.
        epsilon: half a unit in the last place of its dtype, relative; 0 for integers.
        plain: True if it could equal another value by chance: a single integer or boolean, -1, 0, 1, or equal entries.
        shown: its first entry, for display.
        shape: its shape without unit axes.
        entries: the sketch of its entries in ascending order; None for that sketch itself.
        has_nan: True if an entry is NaN.
    """

    kind: tuple
    projected: np.ndarray
    norm: float
    epsilon: float
    plain: bool
    shown: str
    shape: tuple[int, ...] = ()
    entries: "Sketch | None" = None
    has_nan: bool = False


@functools.lru_cache(maxsize=256)
def _directions(size: int) -> np.ndarray:
    signs = np.random.default_rng(size).integers(0, 2, (PROJECTIONS, size), np.int8)
    return (2 * signs - 1).astype(np.float64)


@functools.lru_cache(maxsize=64)
def _precision(dtype: np.dtype) -> tuple[float, float]:
    """Returns the least size of an entry that counts as infinite, and half a unit in the last place; 0 if exact."""
    if not jnp.issubdtype(dtype, np.inexact):
        return np.inf, 0.0
    return min(MASKING, float(jnp.finfo(dtype).max) / 4), float(jnp.finfo(dtype).eps) / 2


def sketch(value: Any, ascending: bool = True) -> Sketch:
    """Returns the sketch of an array, or of typed keys, with the sketch of its entries in ascending order if wanted."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    return _sketch(array, _sketch(np.sort(array, axis=None)) if ascending and array.size > 1 else None)


def _sketch(array: np.ndarray, entries: Sketch | None = None) -> Sketch:
    huge, epsilon = _precision(array.dtype)
    flat = array.ravel()
    flat = flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64)
    sizes = np.abs(flat)
    plain = sizes < huge
    holes = 0 if plain.all() else hash(_signs(flat[~plain]).tobytes() + plain.tobytes())
    has_nan = bool(holes and np.isnan(flat).any())
    flat, sizes = (np.where(plain, each, 0) if holes else each for each in (flat, sizes))
    exact = 0 if epsilon else hash(flat.tobytes())  # different masks may have equal projections
    return Sketch(
        kind=(array.size, "float" if epsilon else "integer", holes or exact),
        projected=(_directions(flat.size) * flat).sum(axis=1),  # a matrix product would start all threads
        norm=float(np.sqrt((sizes**2).sum())),
        epsilon=epsilon,
        plain=_plain(flat, bool(epsilon)),
        shown=f"{array.ravel()[0]:.7g}" if array.size and epsilon else str(array.ravel()[:1].tolist())[1:-1],
        shape=tuple(size for size in array.shape if size > 1),
        entries=entries,
        has_nan=has_nan,
    )


def _signs(masked: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(masked), 0, np.sign(np.real(masked))).astype(np.int8)


def _plain(flat: np.ndarray, floating: bool) -> bool:
    if flat.size == 1:
        return not floating or flat[0] in (-1, 0, 1)
    return bool(flat.size == 0 or (flat == flat[0]).all())


def distance(reference: Sketch, candidate: Sketch) -> float:
    """Returns the estimated relative distance of two arrays; infinite if their kinds differ.

    Arrays of other shapes may hold equal entries in other orders, such as those of an axis that only one side maps.
    """
    if reference.shape != candidate.shape and reference.entries and candidate.entries:
        return min(_distance(reference, candidate), _distance(reference.entries, candidate.entries))
    return _distance(reference, candidate)


def opposite(one: Sketch, other: Sketch) -> bool:
    """True if two masks of one size have no equal entry."""
    both = np.isclose(one.norm**2 + other.norm**2, one.kind[0]) and one.kind[0] == other.kind[0]
    return bool(both) and np.array_equal(
        one.projected + other.projected, _directions(one.kind[0]).sum(axis=1)
    )


def _distance(reference: Sketch, candidate: Sketch) -> float:
    if reference.kind != candidate.kind:
        return float("inf")
    off = reference.projected - candidate.projected
    gap = math.sqrt(np.vdot(off, off).real / off.size)
    if gap == 0:
        return 0.0
    return gap / reference.norm if reference.norm > 0 else float("inf")
