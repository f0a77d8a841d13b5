"""Shared by the channels of values: outputs that only one side returns, the ladder, guards against vacuity."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from parity.builds.build import Group
from parity.channels.results import SIDES, compared, one_sided, vacuous
from parity.compare.evidence import Evidence
from parity.compare.runs import changed_choices, judged_runs, only_ties
from parity.compare.stress import stress
from parity.values.ladder import climb
from parity.values.vacuity import constant_leaves, not_finite, same_buffers
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["measured", "missing_outputs", "not_run", "nothing_returned", "ties"]


def measured(
    evidence: Evidence, group: Group, guard: Callable[[Mapping[str, np.ndarray]], list[Finding]]
) -> ChannelResult:
    """Runs both sides and returns the rung that their outputs of a group reach.

    Args:
        evidence: the case.
        group: the group of outputs.
        guard: finds properties of the reference's outputs that make the check vacuous.
    """
    if nothing := nothing_returned(evidence, group):
        return vacuous(nothing, "nothing to compare")
    if not evidence.reference.backend.executes:
        return not_run(evidence)
    runs = evidence.read(judged_runs)
    reference, candidate = (outputs.get(group, {}) for outputs in runs.outputs)
    if missing := missing_outputs(reference, candidate):
        return compared("outputs differ", missing)
    result = climb(reference, candidate, runs.judge(group))
    if result.verdict is Verdict.FAILED and (exact := evidence.accepted_exact_proof) is not None:
        result = _with(result, f"not shown in exact arithmetic: {exact.refusal or 'another function'}")
    elif result.verdict is not Verdict.FAILED and evidence.exact_claim:
        bits = "equal bits on the data that ran" if result.verdict is Verdict.BITWISE else result.detail
        result = dataclasses.replace(result, detail=f"{evidence.exact_claim}; {bits}")
    if evidence.read(only_ties):
        result = _with(result, f"routing forced equal past {ties(evidence)}")
    result = _contracted(evidence, group, _stressed(evidence, group, result))
    guards = constant_leaves(group, {}) if not reference else guard(reference)
    guards += not_finite(reference, evidence.case.accept.not_finite) + same_buffers(reference, candidate)
    if guards and result.verdict is not Verdict.FAILED:
        return vacuous(guards)
    return result


def _with(result: ChannelResult, words: str) -> ChannelResult:
    return dataclasses.replace(result, detail=f"{result.detail}; {words}")


def _stressed(evidence: Evidence, group: Group, result: ChannelResult) -> ChannelResult:
    """Compares on stress inputs too, if programs that are known to differ gave numbers that agree."""
    if result.verdict is Verdict.FAILED or not evidence.refuted or jax.process_count() > 1:
        return result
    found = evidence.read(stress)
    if findings := found.findings.get(group, ()):
        detail = f"{result.verdict} on the usual batch, apart on wild data"
        return dataclasses.replace(result, verdict=Verdict.FAILED, detail=detail, findings=findings)
    return _with(result, f"not proved, but {found.detail}")


def _contracted(evidence: Evidence, group: Group, result: ChannelResult) -> ChannelResult:
    """Compares with contraction too, if a case requires equal bits of programs that are proved only `reordered`."""
    if (
        Verdict.REORDERED not in evidence.required.rungs
        or evidence.proof is None
        or evidence.proof.rung is not Verdict.REORDERED
        or result.verdict is not Verdict.BITWISE
        or not getattr(evidence.reference.backend, "options", ())
    ):
        return result
    runs = evidence.read(judged_runs)
    left, right = (outputs.get(group, {}) for outputs in runs.contracted)
    found = climb(left, right, runs.judge(group))
    if found.verdict is Verdict.BITWISE:
        detail = f"{result.detail}, with and without contraction of products and sums"
        return dataclasses.replace(result, detail=detail)
    return _with(found, "bitwise without contraction, not with it")


def nothing_returned(evidence: Evidence, group: Group) -> list[Finding]:
    """Returns a finding if no side returns a leaf of the group."""
    returned = any(side.traced.out_info.get(group) for side in evidence.sides)
    return [] if returned else constant_leaves(group, {})


def missing_outputs(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Finding]:
    """Finds the outputs that only one side returns."""
    return [
        Finding(
            where=path,
            **one_sided(SIDES[path in candidate], "returned", "not returned"),
            cause="an output that only one side returns",
        )
        for path in sorted(set(reference) ^ set(candidate))
    ]


def not_run(evidence: Evidence) -> ChannelResult:
    """Returns the verdict ``reordered`` if the proof suffices, else ``open``: the backend runs nothing."""
    backend = evidence.reference.backend.name
    reordered = evidence.proof if evidence.proof is not None and evidence.proof.reordered else None
    if reordered and evidence.required_of_numbers.met_by(Verdict.FLOOR):
        rules = f" and rules ({', '.join(reordered.rules)})" if reordered.rules else ""
        detail = f"equal up to the order of operands of float operations{rules}; {backend} runs nothing"
        return ChannelResult(verdict=Verdict.REORDERED, detail=detail)
    why = f"only reordered where {evidence.required_of_numbers} is required" if reordered else "not proved"
    detail = f"not compared: {why}, and {backend} runs nothing; run the case on cpu as well"
    return ChannelResult(verdict=Verdict.OPEN, detail=detail)


def ties(evidence: Evidence) -> str:
    """Returns the number of tokens whose choice depends on rounding, as text."""
    count = len(evidence.read(changed_choices))
    return f"{count} token{'s' if count > 1 else ''} at a tie"
