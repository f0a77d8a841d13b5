"""The sharding channel: logical axes and resolved specs of every state leaf on both sides."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.side import Side
from parity.transforms import Identity
from parity.verdicts import ChannelResult, Finding, Verdict
from parity.weights import Entry, WeightMap

__all__ = ["compare_axes", "compare_shardings"]


def compare_axes(entry: Entry, sides: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Finds leaves of one map entry whose logical axes differ beyond what the transform explains."""
    names = [[side[path].logical_axes for path in paths] for side, paths in _paired(entry, sides)]
    if all(axes is None for axes in (*names[0], *names[1])):
        return []
    expected = None if None in names[0] else entry.transform.axes(names[0])
    if None not in names[0] and None not in names[1] and expected is None:
        return []
    found = zip(entry.candidate, expected or names[0], names[1], strict=False)
    return [
        Finding(
            where=path,
            reference=f"logical axes {wanted}",
            candidate=f"logical axes {got}",
            cause="axis names swapped, missing or left on a stacked axis",
            next_step="compare the parameter's declaration on both sides",
        )
        for path, wanted, got in found
        if wanted != got
    ]


def _paired(entry: Entry, sides: Sequence[Any]):
    return zip(sides, (entry.reference, entry.candidate), strict=True)


def _shards(spec: jax.sharding.PartitionSpec, sizes: Mapping[str, int]) -> int:
    axes = [axis for part in spec for axis in (part if isinstance(part, tuple) else (part,)) if axis]
    return math.prod(sizes[axis] for axis in axes)


def _trimmed(spec: jax.sharding.PartitionSpec) -> tuple:
    parts = list(spec)
    while parts and parts[-1] is None:
        parts.pop()
    return tuple(parts)


def _bytes(side: Side, path: str, sizes: Mapping[str, int]) -> int:
    leaf = side.build.abstract[path]
    width = 4 if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.dtype(leaf.dtype).itemsize
    return width * math.prod(leaf.shape) // _shards(side.specs[path], sizes)


def _spec_findings(entry: Entry, reference: Side, candidate: Side) -> list[Finding]:
    if not isinstance(entry.transform, Identity):
        return []
    sizes = dict(reference.mesh.axes)
    (path,), (twin,) = entry.reference, entry.candidate
    specs = (reference.specs[path], candidate.specs[twin])
    if _trimmed(specs[0]) == _trimmed(specs[1]):
        return []
    held = [_bytes(reference, path, sizes), _bytes(candidate, twin, sizes)]
    return [
        Finding(
            where=twin,
            reference=f"{specs[0]} from axes {reference.build.leaves[path].logical_axes}",
            candidate=f"{specs[1]} from axes {candidate.build.leaves[twin].logical_axes}",
            distance=f"{held[0]} and {held[1]} bytes per device",
            cause="logical axes or rules that differ",
            next_step="compare the parameter's declaration on both sides",
        )
    ]


def compare_shardings(
    reference: Side, candidate: Side, weights: WeightMap, *, compiled: bool
) -> ChannelResult:
    """Compares logical axes and resolved specs leaf by leaf.

    Args:
        reference, candidate: the two sides, on one mesh.
        weights: which leaves belong together.
        compiled: whether to compile, and hold what each side's program wants to its own specs.
    """
    leaves = (reference.build.leaves, candidate.build.leaves)
    findings = [finding for entry in weights.entries for finding in compare_axes(entry, leaves)]
    if not reference.mesh.axes:
        named = sum(leaf.logical_axes is not None for leaf in leaves[0].values())
        verdict = Verdict.FAILED if findings else Verdict.EQUAL
        return ChannelResult(
            name="sharding",
            verdict=verdict,
            detail=f"{named} leaves with logical axes, one device",
            findings=tuple(findings),
        )
    for entry in weights.entries:
        findings += _spec_findings(entry, reference, candidate)
    sharded = sum(bool(_trimmed(spec)) for spec in reference.specs.values())
    split = sum(bool(_trimmed(spec)) for spec in reference.input_specs.values())
    if compiled:
        findings += _compiled_findings(reference) + _compiled_findings(candidate)
    if not sharded and not split:
        return ChannelResult(
            name="sharding",
            verdict=Verdict.VACUOUS,
            detail=f"nothing is sharded on {reference.mesh}; give the leaves logical axes and rules",
        )
    detail = f"{sharded} of {len(reference.specs)} leaves and {split} inputs sharded"
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    return ChannelResult(name="sharding", verdict=verdict, detail=detail, findings=tuple(findings))


def _compiled_findings(side: Side) -> list[Finding]:
    """Finds state arguments that the compiled program wants elsewhere than the rules say."""
    compiled = side.compiled.input_shardings[0][0]
    findings = []
    for path, spec in side.specs.items():
        wanted = jax.sharding.NamedSharding(side.backend.mesh(side.mesh), spec)  # pyright: ignore[reportArgumentType]
        got = compiled[path]
        rank = len(side.build.abstract[path].shape)
        if got is not None and not got.is_equivalent_to(wanted, rank):
            findings.append(
                Finding(where=f"{side.build.name} {path}", reference=f"{spec}", candidate=f"compiled {got}")
            )
    return findings
