"""Initial states: every leaf from keys of its own, and both twins' the same bits."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from parity.rng.audit import Audited
from parity.rng.demand import Demand
from parity.verdicts import Finding
from parity.weights.map import WeightMap

__all__ = ["compare_initial", "named_by_leaf"]


def named_by_leaf(audited: Audited, jaxpr: Any, leaves: Iterable[tuple[int, str]]) -> Audited:
    """Returns the draws that make some leaves, their sites led by the leaves' names.

    Args:
        audited: what the function that makes a state drew.
        jaxpr: that function, traced.
        leaves: position among its outputs and path of each leaf that counts.
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
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray], weights: WeightMap
) -> list[Finding]:
    """Finds leaves that start with other bits on the two sides, from the same key.

    Args:
        reference, candidate: fresh states, on the host.
        weights: which leaf is which.
    """
    back = weights.to_reference(candidate)
    return [
        Finding(
            where=f"initial {path}",
            reference=_some(array),
            candidate=_some(back[path]),
            distance=f"{int((array != back[path]).sum()):,} of {array.size:,} entries differ",
            cause="the leaf is drawn from another key, or by another initializer",
            next_step="derive the key as the other twin does, see models_nnx.rngs.PathRngs",
        )
        for path, array in reference.items()
        if path in back and array.shape == back[path].shape and array.tobytes() != back[path].tobytes()
    ]


def _some(array: np.ndarray) -> str:
    return f"starts {', '.join(f'{entry:.6g}' for entry in np.asarray(array, np.float64).flat[:3])}"
