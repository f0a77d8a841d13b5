"""The certificate of a weight map: each matched parameter is moved on both sides, and both must follow."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from parity.comparison.comparison import SEED, Comparison
from parity.comparison.pairing import state_arguments
from parity.programs.build import Group
from parity.programs.tree import Role
from parity.weights.map import Entry

__all__ = ["Certified", "certify"]

ALIKE = 1e-3
"""Largest relative difference between the two responses to one perturbation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certified:
    """One entry of the map with what confirms it.

    Args:
        entry: the pairing.
        confirmed_by: in words.
        contradicted: whether the two sides moved differently.
    """

    entry: Entry
    confirmed_by: str
    contradicted: bool = False


def certify(work: Comparison, entries: Sequence[Entry] | None = None) -> list[Certified]:
    """Perturbs the parameters one by one on both sides and compares how the outputs move.

    This tells leaves of one shape apart, such as the gate and up projections of an MLP. Where the
    proof holds under the map, it confirms all leaves that the program reads, and nothing runs. Leaves
    that the program does not read are confirmed by the map being total and one-to-one.

    Args:
        work: a comparison whose program returns values.
        entries: those of the map that are asked about; all by default.

    Raises:
        MapError: the map is not total.
    """
    asked = work.weights.entries if entries is None else entries
    if work.proof is not None and work.proof.proved:
        read = set(state_arguments(work.reference))
        return [
            Certified(entry=entry, confirmed_by="proof" if set(entry.reference) <= read else "one-to-one")
            for entry in asked
        ]
    base = [outputs[Group.VALUES] for outputs in work.outputs]
    return [_probe(work, entry, base) for entry in asked]


def _probe(work: Comparison, entry: Entry, base: list[dict[str, np.ndarray]]) -> Certified:
    if entry.role is not Role.PARAMS:
        return Certified(entry=entry, confirmed_by="one-to-one")
    rng = np.random.default_rng(SEED)
    moved = dict(work.state)
    for path in entry.reference:
        noise = rng.standard_normal(moved[path].shape)
        moved[path] = (moved[path].astype(np.float64) + 0.1 * noise).astype(moved[path].dtype)
    runs = (
        work.reference.run(moved, SEED),
        work.candidate.run(work.as_candidate(moved), SEED),
    )
    changes = [
        np.concatenate(
            [(_wide(run[Group.VALUES][path]) - _wide(start[path])).ravel() for path in sorted(start)]
        )
        for run, start in zip(runs, base, strict=True)
    ]
    size = float(np.linalg.norm(changes[0]))
    if size == 0:
        return Certified(
            entry=entry, confirmed_by="nothing: the outputs do not depend on it", contradicted=True
        )
    apart = float(np.linalg.norm(changes[1] - changes[0])) / size
    if apart > ALIKE:
        return Certified(
            entry=entry, confirmed_by=f"nothing: outputs move {apart:.2g} apart", contradicted=True
        )
    return Certified(entry=entry, confirmed_by="probe")


def _wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, np.float64)
