"""The channel ``values``: losses, logits and metrics."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from parity.builds.build import SEED, Group
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.measure import idle_values, measured
from parity.compare.evidence import Evidence
from parity.values.vacuity import constant_leaves
from parity.verdicts import ChannelResult, Finding

SEEDS = 3
"""Number of seeds whose batches are compared."""
VARY = f"let it vary for each seed; this is `inputs({SEED})`"


@channel(
    column="vals",
    aspect=Aspect.VALUES,
    settled_by_proof=SettledByProof.ALWAYS,
    group=Group.VALUES,
    guard=idle_values,
)
def values(evidence: Evidence) -> ChannelResult:
    """Compares losses, logits and metrics, on a batch and a state in which nothing is constant."""
    constant = constant_leaves("batch", evidence.builds[0].inputs(SEED), VARY)
    result = measured(evidence, Group.VALUES, lambda reference: constant + _constant_values(reference))
    return dataclasses.replace(result, notes=(*result.notes, *_fixed_inputs(evidence)))


def _constant_values(reference: Mapping[str, np.ndarray]) -> list[Finding]:
    """Returns a finding for each constant output; equal integers may be counts, unless there is nothing else."""
    others = {path: array for path, array in reference.items() if array.dtype.kind not in "iu"}
    return constant_leaves("values", others or reference)


def _fixed_inputs(evidence: Evidence) -> Iterator[Finding]:
    """Yields a note on inputs that are the same for every seed: no other values were run."""
    first, *others = (evidence.builds[0].inputs(SEED + number) for number in range(SEEDS))
    fixed = [name for name in first if all(np.array_equal(first[name], one[name]) for one in others)]
    if fixed:
        yield Finding(
            where=f"inputs {', '.join(sorted(fixed))}",
            reference="the same for every seed",
            candidate="",
            next_step="what only other values show was not seen; let them depend on the seed",
            labels=("", ""),
        )
