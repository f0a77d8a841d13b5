"""The channel ``state``: parameters, optimizer, keys, counts and the rest, after the first and the last step."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from parity.builds.build import Group
from parity.builds.tree import Leaf, Role
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.consequences import causes_first
from parity.channels.measure import idle_state, measured, trains
from parity.compare.evidence import Evidence
from parity.values.vacuity import nothing_moved
from parity.verdicts import ChannelResult, Finding, Verdict


@channel(
    column="state",
    aspect=Aspect.VALUES,
    settled_by_proof=SettledByProof.ALWAYS,
    group=Group.STATE,
    guard=idle_state,
)
def state(evidence: Evidence) -> ChannelResult:
    """Compares parameters, optimizer, keys, counts and the rest after the first and the last step."""

    def guard(after: Mapping[str, np.ndarray]) -> list[Finding]:
        steps = evidence.reference.program.steps
        last = f"step{steps}/" if steps > 1 else ""
        leaves = evidence.builds[0].leaves
        before = {
            last + path: array for path, array in evidence.state.items() if leaves[path].role is Role.PARAMS
        }
        declared = [f"*{glob}" for glob in evidence.case.accept.zero_gradients]
        return nothing_moved(before, after, declared) if trains(evidence) else []

    return _by_cause(measured(evidence, Group.STATE, guard), evidence.builds[0].leaves)


def _by_cause(result: ChannelResult, leaves: Mapping[str, Leaf]) -> ChannelResult:
    """Puts failed findings first, and within each part parameters first, with their moments."""
    rungs = {row["leaf"]: row["rung"] for row in result.tables.get("leaves", ())}
    findings: list[Finding] = []
    for failed in (True, False):
        part = [one for one in result.findings if (rungs.get(one.leaf) == Verdict.FAILED) is failed]
        findings += causes_first(part, [one.leaf for one in part], leaves)
    return dataclasses.replace(result, findings=tuple(findings))
