"""The certificate of a weight map: each matched parameter is perturbed on both sides, and both must respond equally.

The certified map is data for converting checkpoints.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from parity.builds.build import SEED, Build, Group
from parity.builds.convert.exported import PROOF, Certified, ExportedLeaf, ExportedMap, ExportedSide
from parity.builds.tree import Leaf, Role, is_key
from parity.builds.weights.map import Entry
from parity.compare.backends.environment import describe_environment
from parity.compare.evidence import Evidence
from parity.compare.pairing import state_fingerprints
from parity.compare.runs import judged_runs, pair_outputs
from parity.ir.jax_internals import key_implementation
from parity.ir.precision import rounds
from parity.verdicts import SIDES, Verdict, grouped

TOLERANCE = 1e-3
"""Largest relative difference between the two responses to one perturbation."""
ROUNDING = {True: 2.0**-6, False: 2.0**-20}
"""Relative rounding of outputs that are computed in bfloat16 (True) or float32, which a response inherits."""


def certify(evidence: Evidence, entries: Sequence[Entry] | None = None) -> list[Certified]:
    """Perturbs the parameters one by one on both sides and compares the changes of the outputs.

    This distinguishes leaves of one shape, such as the gate and up projections of an MLP. A proof under the map
    confirms the leaves that the program reads without a run, except those that it uses in the same way as another.
    These, and leaves that the program does not read, rest only on a total and one-to-one map.

    Args:
        entries: the entries to certify; all by default.

    Raises:
        MapError: the map is not total.
    """
    asked = evidence.weights.entries if entries is None else entries
    if evidence.rung is Verdict.PROVED:
        return _by_proof(evidence, asked)
    return [_probe(evidence, entry) for entry in asked]


def differ_before(evidence: Evidence) -> bool:
    """True if outputs differ by more than noise before a perturbation, so that responses differ, too."""
    left, right = evidence.read(_base)
    gaps = {path: _norm(_change(right[path], array)) for path, array in left.items()}
    rounding, noise = evidence.read(_rounding), evidence.read(_noise)
    return math.hypot(*gaps.values()) > rounding and any(gaps[path] > rounding + noise[path] for path in gaps)


def _base(evidence: Evidence) -> tuple[dict[str, np.ndarray], ...]:
    """Returns the outputs that both sides have."""
    left, right = (_vectors(outputs) for outputs in evidence.read(judged_runs).outputs)
    both = [path for path, array in left.items() if path in right and array.size == right[path].size]
    return {path: left[path] for path in both}, {path: right[path] for path in both}


def _rounding(evidence: Evidence) -> float:
    """Returns the rounding of the finite outputs together."""
    size = math.hypot(*(_norm(array[np.isfinite(array)]) for array in evidence.read(_base)[0].values()))
    return ROUNDING[any(rounds(side.traced.jaxpr) for side in evidence.sides)] * size


def _noise(evidence: Evidence) -> dict[str, float]:
    """Returns twice the largest change of each output of the reference from nudged weights and inputs."""
    runs = [_vectors(outputs) for outputs in evidence.read(judged_runs).nudged]
    return {
        path: 2 * max(_norm(_change(run[path], array)) for run in runs)
        for path, array in evidence.read(_base)[0].items()
    }


def _vectors(outputs: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the values of a program as vectors in float64, or its gradients if it returns no values."""
    held = outputs.get(Group.VALUES) or outputs.get(Group.GRADIENTS, {})
    return {path: array.astype(np.float64).ravel() for path, array in held.items()}


def _change(moved: np.ndarray, start: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(moved - start)  # infinite before and after: no change


def _norm(change: np.ndarray) -> float:
    return float(np.linalg.norm(change))


def _by_proof(evidence: Evidence, asked: Sequence[Entry]) -> list[Certified]:
    """Returns the entries with their confirmations: the proof, unless the program uses another leaf in the same way."""
    prints = evidence.reference.read(state_fingerprints)

    def is_read(entry: Entry) -> bool:
        return prints.keys() >= set(entry.reference)

    read = grouped(filter(is_read, evidence.weights.entries), lambda entry: _kind(evidence, entry, prints))

    def confirmation(entry: Entry) -> str:
        if not is_read(entry):
            return "one-to-one; not read by the program"
        rival = next((one for one in read[_kind(evidence, entry, prints)] if one != entry), None)
        return f"one-to-one; used in the same way as {rival.reference[0]}" if rival else PROOF

    return [_certified(entry, confirmed_by=confirmation(entry)) for entry in asked]


def _certified(entry: Entry, confirmed_by: str, contradicted: bool = False) -> Certified:
    return Certified(**vars(entry), confirmed_by=confirmed_by, contradicted=contradicted)


def _kind(evidence: Evidence, entry: Entry, prints: Mapping[str, str]) -> tuple[Hashable, ...]:
    """Returns the properties that another entry must share to be exchanged with this one."""
    leaves = [
        (side.leaves[path].shape, side.leaves[path].dtype)
        for side, paths in zip(evidence.builds, (entry.reference, entry.candidate), strict=True)
        for path in paths
    ]
    uses = tuple(prints[path] for path in entry.reference)
    return entry.role, repr(entry.transform), tuple(leaves), uses


def _probe(evidence: Evidence, entry: Entry) -> Certified:
    if entry.role is not Role.PARAMS:
        return _certified(entry, confirmed_by="one-to-one")
    sizes, gaps = evidence.memo(_response, evidence, entry)
    size, distance = (math.hypot(*each.values()) for each in (sizes, gaps))
    if size == distance == 0:
        return _certified(entry, confirmed_by="nothing: the outputs do not depend on it")
    rounding = evidence.read(_rounding)
    if 0 < max(size, distance) <= rounding:
        return _certified(entry, confirmed_by="nothing: the change is lost in rounding")
    if distance <= TOLERANCE * size + rounding:
        return _certified(entry, confirmed_by="probe")
    noise = evidence.read(_noise)
    if all(gaps[path] <= TOLERANCE * sizes[path] + rounding + noise[path] for path in gaps):
        return _certified(entry, confirmed_by="nothing: the responses differ by noise")
    words = f"nothing: the outputs of the two sides change differently, by {unlike(evidence, entry):.2g}"
    return _certified(entry, confirmed_by=words, contradicted=True)


def unlike(evidence: Evidence, entry: Entry) -> float:
    """Returns the relative difference of the responses of both sides, at most 1."""
    size, distance = (math.hypot(*each.values()) for each in evidence.memo(_response, evidence, entry))
    return distance / max(size, distance)


def _response(evidence: Evidence, entry: Entry) -> tuple[dict[str, float], dict[str, float]]:
    """Returns how a perturbed parameter changes each output of the reference, and the distance of both sides."""
    rng = np.random.default_rng(SEED)
    moved = dict(evidence.state)
    for path in entry.reference:
        noise = rng.standard_normal(moved[path].shape)
        moved[path] = (moved[path].astype(np.float64) + 0.1 * noise).astype(moved[path].dtype)
    runs = (evidence.reference.run(moved, SEED), evidence.candidate.run(evidence.as_candidate(moved), SEED))
    ends = map(_vectors, pair_outputs(evidence, *runs))
    left, right = (
        {path: _change(end[path], array) for path, array in start.items()}
        for end, start in zip(ends, evidence.read(_base), strict=True)
    )
    gaps = {path: _norm(right[path] - array) for path, array in left.items()}
    return {path: _norm(array) for path, array in left.items()}, gaps


def export(evidence: Evidence, certified: Sequence[Certified]) -> ExportedMap:
    """Returns a map as data."""
    environment = describe_environment()
    reference, candidate = map(_side, evidence.builds)
    return ExportedMap(
        case=evidence.case.id,
        versions={name: environment[name] for name in ("python", "packages", "commit")},
        reference=reference,
        candidate=candidate,
        entries=tuple(certified),
        alone=dict(zip(SIDES, evidence.weights.alone, strict=True)),
    )


def _side(build: Build) -> ExportedSide:
    return ExportedSide(
        name=build.name,
        flavour=str(build.flavour),
        leaves={path: _leaf(leaf, build.abstract[path]) for path, leaf in build.leaves.items()},
        tree=build.skeleton,
    )


def _leaf(leaf: Leaf, like: Any) -> ExportedLeaf:
    key = key_implementation(like.dtype) if is_key(like) else ""
    return ExportedLeaf(shape=leaf.shape, dtype=leaf.dtype, role=leaf.role, key=key)
