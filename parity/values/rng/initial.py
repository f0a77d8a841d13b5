"""Initial states: every leaf is drawn from separate keys, and both twins start with the same bits."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from parity.builds.weights.map import WeightMap
from parity.values.rng.audit import Audited
from parity.values.rng.demand import Demand
from parity.values.rng.distribution import Samples, as_numbers, start_finding
from parity.verdicts import Finding

__all__ = ["ANOTHER_CONSTANT", "ANOTHER_KEY", "compare_initial", "named_by_leaf"]

ANOTHER_KEY = (
    "the leaf is drawn from another key, or by another initializer",
    "derive the key as the other twin does, see models_nnx.rngs.PathRngs",
)
ANOTHER_CONSTANT = (
    "another constant: no key changes this leaf",
    "give the leaf the same initial value on both sides",
)


def named_by_leaf(audited: Audited, jaxpr: Any, leaves: Iterable[tuple[int, str]]) -> Audited:
    """Returns the draws of some leaves, with the leaves' names at the start of their sites.

    Args:
        audited: draws of the function that makes a state.
        jaxpr: that function, traced.
        leaves: position among its outputs and path of each leaf to include.
    """
    owners: dict[tuple[int, ...], list[str]] = {}
    for position, path in leaves:
        for place in Demand(jaxpr, [position], all_draws=False).draws:
            owners.setdefault(place, []).append(path)
    draws = (
        dataclasses.replace(draw, site=f"{', '.join(owners[draw.equation])} ({draw.site})")
        for draw in audited.draws
        if draw.equation in owners
    )
    return dataclasses.replace(audited, draws=tuple(draws))


def compare_initial(
    reference: Samples, candidate: Samples, weights: WeightMap, advice: tuple[str, str]
) -> list[Finding]:
    """Returns a finding for each leaf whose initial bits differ between the two sides.

    Leaves of two dtypes, which `tree` reports, are compared as numbers.

    Args:
        reference, candidate: fresh states, on the host.
        weights: the weight map.
        advice: likely cause of a difference, and the next step.
    """
    back = weights.to_reference(candidate)
    findings = []
    for path, array in reference.items():
        if path not in back or not (differs := _differs(array, back[path])).any():
            continue
        words = (_some(side, differs) for side in (array, back[path]))
        distance = f"{int(differs.sum()):,} of {array.size:,} entries differ"
        findings.append(start_finding(path, words, advice, distance))
    return findings


def _differs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns a flag for each entry: its bits differ, or its number if the dtypes differ."""
    if left.dtype != right.dtype:
        return np.ravel(np.not_equal(as_numbers(left), as_numbers(right)))
    shape = left.size, left.itemsize
    bits = (np.frombuffer(array.tobytes(), np.uint8).reshape(shape) for array in (left, right))
    return np.asarray(np.not_equal(*bits).any(axis=1))


def _some(array: np.ndarray, differs: np.ndarray) -> str:
    numbers = as_numbers(array).reshape(len(differs), -1)
    return f"starts {', '.join(f'{entry:.6g}' for entry in numbers[differs][:3].flat)}"
