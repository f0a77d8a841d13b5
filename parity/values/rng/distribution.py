"""Initial states: the same bits, or the same distributions if the sides do not share keys, leaf by leaf."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.builds.tree import unlike_entries
from parity.builds.weights.map import WeightMap
from parity.verdicts import Finding, Verdict, grouped

ENOUGH = 202_500
"""Normal numbers per side that suffice to find scales that differ by 2 % with probability `FOUND`."""
MOST_SORTED = 65_536
"""Maximum numbers of a leaf in comparisons other than of scale, which sort them; more would add little."""
IMPROBABLE = 1e-7
SIGMAS = 6.0
"""Limit of a gap between scales; chance exceeds it once in 500 million leaves."""
MATERIAL = 0.01
"""Share of repeated magnitudes below which one side may draw floats on a finer grid."""
FOUND = "99.9 %"
SIGMAS_FOUND = 9.0
"""Gap of true scales whose measurement exceeds `SIGMAS` with probability `FOUND`."""
ROUNDINGS = 4
"""Units in the last place of its largest entry by which a leaf that two formulas make may differ."""
HARDLY = 1e-4
"""Share of an entry by which it may differ then."""
DEPENDS = 0.4
"""Correlations of two leaves that differ by more than this are not chance with `FEWEST` magnitudes."""
FEWEST = 500
CORRELATED = 16 * FEWEST
"""Numbers of a leaf from which correlations are computed."""

FEWEST_OF_SLICE = 100
"""A slice is compared only if it has this many numbers, of all keys together."""
SIGMAS_OF_SLICE = 7.0
"""Limit of a gap between two slices, of which there may be a million."""
NORMED = 10
"""Ratio of the spreads of norms of slices that no chance explains: one side normalises its slices."""
MANY_KEYS = 16
"""With fewer keys, the dependence among numbers of one key is known only roughly."""

ANOTHER_KEY = (
    "the leaf is drawn from another key, or by another initializer",
    "derive the key as the other twin does, see models_nnx.rngs.PathRngs",
)
ANOTHER_CONSTANT = (
    "another constant: no key changes this leaf",
    "give the leaf the same initial value on both sides",
)
OTHER_PARTS = (
    "parts in another order, or a scale of each part",
    "compare the initializers of the leaf's parts on both sides",
)
NORMALISED = ("one side normalises the leaf", "compare the initializers of the leaf on both sides")

Samples = Mapping[str, np.ndarray]


def start_finding(path: str, words: Iterable[str], advice: tuple[str, str], distance: str = "") -> Finding:
    """Returns a finding on the initial state of a leaf.

    Args:
        advice: likely cause of the difference, and the next step.
    """
    reference, candidate = words
    return Finding(
        where=f"initial {path}",
        reference=reference,
        candidate=candidate,
        distance=distance,
        cause=advice[0],
        next_step=advice[1],
        leaf=path,
    )


def on_leaf(finding: Finding, path: str) -> Finding:
    """Returns a finding on the initial state as one on another leaf."""
    return dataclasses.replace(finding, where=f"initial {path}", leaf=path)


def as_numbers(array: np.ndarray) -> np.ndarray:
    """Returns an array in float64; a complex number is two numbers, along a last axis."""
    if np.iscomplexobj(array):
        return np.stack([np.real(array), np.imag(array)], axis=-1).astype(np.float64)
    return np.asarray(array, np.float64)


def compare_initial(
    reference: Samples, candidate: Samples, weights: WeightMap, advice: tuple[str, str]
) -> tuple[list[Finding], Verdict]:
    """Returns a finding for each leaf that starts differently, and ``equal`` if other leaves differ by rounding.

    Leaves of two dtypes, which `tree` reports, are compared as numbers.
    """
    back = weights.to_reference(candidate)
    findings, verdict = [], Verdict.BITWISE
    for path, array in reference.items():
        if path not in back or not (differs := _differs(array, back[path])).any():
            continue
        if not (differs := differs & ~_is_rounding(array, back[path])).any():
            verdict = Verdict.EQUAL
            continue
        words = (_some(side, differs) for side in (array, back[path]))
        distance = f"{int(differs.sum()):,} of {array.size:,} entries differ"
        findings.append(start_finding(path, words, advice, distance))
    return findings, verdict


def _differs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns a flag for each entry: its bits differ, or its number if the dtypes differ."""
    if left.dtype != right.dtype:
        return np.ravel(np.not_equal(as_numbers(left), as_numbers(right)))
    return np.ravel(unlike_entries(left, right))


def _is_rounding(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns a flag for each entry: it differs by rounding of the largest entry, and hardly in its own size."""
    if left.dtype != right.dtype or not jnp.issubdtype(left.dtype, jnp.floating):
        return np.zeros(left.size, bool)
    one, other = (np.ravel(as_numbers(side)) for side in (left, right))
    with np.errstate(invalid="ignore"):
        gap, size = np.abs(one - other), np.abs(one)
        limit = (
            ROUNDINGS * float(jnp.finfo(left.dtype).eps) * np.max(size, where=np.isfinite(size), initial=0)
        )
        return (gap > 0) & (gap <= np.minimum(limit, HARDLY * size))


def _some(array: np.ndarray, differs: np.ndarray) -> str:
    numbers = as_numbers(array).reshape(len(differs), -1)
    return f"starts {', '.join(f'{entry:.6g}' for entry in numbers[differs][:3].flat)}"


def compare_distributions(reference: Samples, candidate: Samples) -> list[Finding]:
    """Returns a finding for each leaf whose distributions differ.

    Args:
        reference, candidate: numbers of each leaf under the same paths, one row per key, in float64.
    """
    findings = []
    for path in sorted(set(reference) & set(candidate)):
        distance, cause = _difference(reference[path], candidate[path])
        if distance:
            advice = cause, "compare the initializers of the leaf on both sides"
            findings.append(
                start_finding(path, map(_words, (reference[path], candidate[path])), advice, distance)
            )
    return findings


def compare_slices(
    reference: Samples, candidate: Samples, places: Mapping[str, Sequence[np.ndarray]]
) -> list[Finding]:
    """Returns a finding for each leaf with a slice of another distribution, such as a layer or the columns of one gate.

    Distributions of whole leaves do not show layers, or parts of a fused kernel, that are exchanged.

    Args:
        reference, candidate: numbers of each leaf under the same paths, one row per key, in float64.
        places: position of each number of a row, axis by axis, for the leaves to compare.
    """
    findings = []
    for path, indices_by_axis in sorted(places.items()):
        sides = reference[path], candidate[path]
        for axis, indices in enumerate(indices_by_axis):
            index = _unlike_slice(*sides, indices)
            if index is not None:
                words = (_words(side[:, indices == index]) for side in sides)
                distance = f"slice {index} along axis {axis} is distributed otherwise"
                findings.append(start_finding(path, words, OTHER_PARTS, distance))
                break
            spreads = [_spread_of_norms(side, indices) for side in sides]
            if max(spreads) > NORMED * min(spreads):
                words = (f"norms of slices along axis {axis} vary by {spread:.2g}" for spread in spreads)
                findings.append(start_finding(path, words, NORMALISED))
                break
    return findings


def smallest_difference(reference: Samples, candidate: Samples) -> tuple[float, str]:
    """Returns the smallest difference of scales that is found in every leaf, and the leaf that determines it.

    It is found with the probability `FOUND`.
    """
    found = [
        (SIGMAS_FOUND * np.hypot(_uncertainty(reference[path]), _uncertainty(candidate[path])), path)
        for path in reference
    ]
    return max(found, default=(0.0, ""))


def _unlike_slice(left: np.ndarray, right: np.ndarray, indices: np.ndarray) -> int | None:
    """Returns the slice with the largest gap between ranks, or their squares; None if chance explains it.

    Ranks among the numbers of both sides are bounded, so that rare large numbers do not decide.
    """
    _, inverse, counts = np.unique(np.stack([left, right]), return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return None
    ranks = (2 * np.cumsum(counts) - counts) / counts.sum() - 1
    sides = ranks[inverse.reshape(2, *left.shape)]
    order, present, starts, sizes = _sorted_slices(indices)
    if len(present) < 2:
        return None
    worst, place = SIGMAS_OF_SLICE, None
    for power in (1, 2):
        (mean, error), (other, another) = (_slices(side[:, order] ** power, starts, sizes) for side in sides)
        gaps = np.abs(mean - other) / (np.hypot(error, another) + 1e-9)
        gaps[sizes * len(left) < FEWEST_OF_SLICE] = 0.0
        if gaps.max() > worst:
            worst, place = gaps.max(), int(present[gaps.argmax()])
    return place


def _sorted_slices(indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the order that puts the numbers of a slice together; the slices, their starts in it, their sizes."""
    order = np.argsort(indices, kind="stable")
    return order, *np.unique(indices[order], return_index=True, return_counts=True)


def _spread_of_norms(side: np.ndarray, indices: np.ndarray) -> float:
    """Returns the relative standard deviation of the squared norms of slices over all keys, at least 1e-3."""
    order, _, starts, _ = _sorted_slices(indices)
    norms = np.add.reduceat(side[:, order] ** 2, starts, axis=1)
    if norms.size < FEWEST_OF_SLICE or not norms.any():
        return 1e-3
    return max(float(norms.std() / norms.mean()), 1e-3)


def _slices(numbers: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of each slice and its standard error, allowing for dependent numbers of one key."""
    keys = len(numbers)
    rows = np.add.reduceat(numbers, starts, axis=1) / sizes
    mean = rows.mean(axis=0)
    squares = np.add.reduceat(numbers**2, starts, axis=1).mean(axis=0) / sizes
    single = np.maximum(squares - mean**2, 0.0) / (keys * sizes)
    if keys < 2:
        return mean, np.sqrt(single)
    between = rows.var(axis=0, ddof=1) / keys
    pooled = single * between.sum() / max(single.sum(), 1e-300)
    factor = 1.0 if keys >= MANY_KEYS else 4.0
    return mean, np.sqrt(np.maximum(single, factor * np.maximum(between, pooled)))


def _difference(left: np.ndarray, right: np.ndarray) -> tuple[str, str]:
    """Returns the difference of two samples and its likely cause; empty if chance explains it."""
    fixed = [sample.flat[0] if (sample == sample.flat[0]).all() else None for sample in (left, right)]
    if None not in fixed:
        return ("", "") if fixed[0] == fixed[1] else ("constants that differ", "another constant")
    if fixed.count(None) == 1:
        return "a constant on one side only", "another initializer"
    tests: tuple[tuple[Callable[[np.ndarray, np.ndarray], str], str], ...] = (
        (_zeros, "entries that one side sets to zero"),
        (_scale, "another initializer, or another fan-in"),
        (_grid, "a draw in another dtype, converted afterwards, or a part that repeats another"),
        (_shape, "another initializer"),
    )
    return next(((words, cause) for test, cause in tests if (words := test(left, right))), ("", ""))


def _zeros(left: np.ndarray, right: np.ndarray) -> str:
    shares = [float(np.mean(sample == 0)) for sample in (left, right)]
    chance = SIGMAS * np.sqrt(sum(shares) / min(left.size, right.size))
    return f"{shares[0]:.2%} and {shares[1]:.2%} are zero" if abs(shares[0] - shares[1]) > chance else ""


def _scale(left: np.ndarray, right: np.ndarray) -> str:
    spreads = [float(np.std(sample)) for sample in (left, right)]
    gap = abs(np.log(spreads[1] / spreads[0])) if min(spreads) > 0 else np.inf
    if gap <= SIGMAS * np.hypot(_uncertainty(left), _uncertainty(right)):
        return ""
    return f"standard deviations {spreads[1] / spreads[0]:.3g} to 1"


def _uncertainty(sample: np.ndarray) -> float:
    """Returns the standard error of the logarithm of a standard deviation.

    Numbers of one key may depend on each other: the error between keys counts if it is larger.
    """
    squares = (sample - sample.mean()) ** 2
    mean = squares.mean()
    if mean == 0:
        return 0.0
    single = squares.var() / squares.size
    between = squares.mean(axis=1).var(ddof=1) / len(squares) if len(squares) > 1 else 0.0
    return float(np.sqrt(max(single, between)) / mean / 2)


def _grid(left: np.ndarray, right: np.ndarray) -> str:
    """Compares the number of distinct magnitudes: there are few possible values, or parts are copies of each other."""
    flat = [sample.ravel()[:MOST_SORTED] for sample in (left, right)]
    sizes = [np.unique(np.abs(numbers)).size for numbers in flat]
    repeated = flat[0].size + flat[1].size - sum(sizes)
    if abs(sizes[0] - sizes[1]) <= max(SIGMAS * np.sqrt(repeated + 1), MATERIAL * flat[0].size):
        return ""
    return f"{sizes[0]:,} and {sizes[1]:,} magnitudes in {flat[0].size:,} numbers each"


def _shape(left: np.ndarray, right: np.ndarray) -> str:
    from scipy import stats  # takes a second to import, and few runs need it

    flat = [sample.ravel()[:MOST_SORTED] for sample in (left, right)]
    chance = np.asarray(stats.ks_2samp(flat[0], flat[1], method="asymp"))[1]
    return "distributions of other shapes" if chance < IMPROBABLE else ""


def compare_dependences(reference: Samples, candidate: Samples) -> list[Finding]:
    """Returns a finding for each pair of leaves of one size that is correlated on one side only."""

    def suffice(path: str) -> bool:
        few = (side[path].ravel()[:CORRELATED] for side in (reference, candidate))
        return all(np.unique(np.abs(numbers)).size >= FEWEST for numbers in few)

    findings = []
    for paths in grouped(filter(suffice, sorted(reference)), lambda path: reference[path].shape).values():
        sides = [
            np.atleast_2d(np.corrcoef([side[path].ravel()[:CORRELATED] for path in paths]))
            for side in (reference, candidate)
        ]
        findings += [
            start_finding(
                paths[second],
                (f"correlation {side[first, second]:.2g} with {paths[first]}" for side in sides),
                ("one draw makes both leaves", "draw each leaf from a key of its own"),
            )
            for first, second in itertools.combinations(range(len(paths)), 2)
            if abs(sides[0][first, second] - sides[1][first, second]) > DEPENDS
        ]
    return findings


def _words(sample: np.ndarray) -> str:
    if (sample == sample.flat[0]).all():
        return f"{sample.flat[0]:.6g} everywhere"
    zeros = np.mean(sample == 0)
    parts = {
        "mean": f"{np.mean(sample):.3g}",
        "standard deviation": f"{np.std(sample):.3g}",
        "largest": f"{np.abs(sample).max():.3g}",
        **({"zeros": f"{zeros:.2%}"} if zeros > 0.001 else {}),
    }
    return f"{', '.join(' '.join(part) for part in parts.items())} of {sample.size:,} numbers"
