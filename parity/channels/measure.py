"""What the channels of values share: outputs that only one side returns, the ladder, guards against vacuity."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from parity.builds.build import Group
from parity.compare.comparison import Comparison
from parity.compare.runs import NO_EXACT
from parity.compare.stress import stress
from parity.values.ladder import climb
from parity.values.vacuity import constant_leaves, not_finite, same_buffers
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["measured", "missing_outputs", "not_run", "nothing_returned", "ties"]


def measured(
    work: Comparison, group: Group, guard: Callable[[Mapping[str, np.ndarray]], list[Finding]]
) -> ChannelResult:
    """Runs both sides and returns the rung that their outputs of a group hold.

    Args:
        work: the case.
        group: which outputs.
        guard: finds in the reference's outputs what makes the check vacuous.
    """
    if nothing := nothing_returned(work, group):
        return ChannelResult(
            name=group, verdict=Verdict.VACUOUS, detail="nothing to compare", findings=tuple(nothing)
        )
    if not work.reference.backend.executes:
        return not_run(group, work)
    reference, candidate = (outputs.get(group, {}) for outputs in work.outputs)
    missing = missing_outputs(reference, candidate)
    if missing:
        return ChannelResult(
            name=group, verdict=Verdict.FAILED, detail="outputs differ", findings=tuple(missing)
        )
    result = climb(group, reference, candidate, work.judge(group))
    if why := work.once(NO_EXACT, str):
        result = dataclasses.replace(result, detail=f"{result.detail}; not arbitrated, no float64 run: {why}")
    if result.verdict is Verdict.FAILED and work.exactly is not None:
        why = work.exactly.refusal or "another function"
        detail = f"{result.detail}; not shown in exact arithmetic: {why}"
        result = dataclasses.replace(result, detail=detail)
    if work.only_ties:
        detail = f"{result.detail}; routing forced equal past {ties(work)}"
        result = dataclasses.replace(result, detail=detail)
    result = _contracted(work, group, _stressed(work, group, result))
    guards = constant_leaves(group, {}) if not reference else guard(reference)
    guards += not_finite(reference, work.case.not_finite) + same_buffers(reference, candidate)
    if guards and result.verdict is not Verdict.FAILED:
        return ChannelResult(
            name=group, verdict=Verdict.VACUOUS, detail="a check that cannot fail", findings=tuple(guards)
        )
    return result


def _stressed(work: Comparison, group: Group, result: ChannelResult) -> ChannelResult:
    """Asks wild data too, where programs that are known to differ gave numbers that agree."""
    if result.verdict is Verdict.FAILED or not work.refuted or jax.process_count() > 1:
        return result
    found = work.once("stress", lambda: stress(work))
    findings = found.findings.get(group, ())
    if findings:
        detail = f"{result.verdict} on the usual batch, apart on wild data"
        return dataclasses.replace(result, verdict=Verdict.FAILED, detail=detail, findings=findings)
    detail = f"{result.detail}; not proved, but {found.detail}"
    return dataclasses.replace(result, detail=detail)


def _contracted(work: Comparison, group: Group, result: ChannelResult) -> ChannelResult:
    """Runs both sides with contraction, too, if a case demands equal bits of what is only reordered."""
    proof, backend = work.proof, work.reference.backend
    if Verdict.REORDERED not in work.required.rungs or proof is None or proof.rung is not Verdict.REORDERED:
        return result
    if result.verdict is not Verdict.BITWISE or not getattr(backend, "options", ()):
        return result
    ours, theirs = (outputs.get(group, {}) for outputs in work.runs.contracted)
    found = climb(group, ours, theirs, work.judge(group))
    words = "with and without contraction of products and sums"
    if found.verdict is Verdict.BITWISE:
        return dataclasses.replace(result, detail=f"{result.detail}, {words}")
    return dataclasses.replace(found, detail=f"{found.detail}; bitwise without contraction, not with it")


def nothing_returned(work: Comparison, group: Group) -> list[Finding]:
    """Finds that no side returns a leaf of the group."""
    returned = any(side.traced.out_info.get(group) for side in (work.reference, work.candidate))
    return [] if returned else constant_leaves(group, {})


def missing_outputs(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Finding]:
    """Finds the outputs that only one side returns."""
    return [
        Finding(
            where=path,
            reference="returned" if path in reference else "not returned",
            candidate="returned" if path in candidate else "not returned",
            cause="an output that only one side returns",
        )
        for path in sorted(set(reference) ^ set(candidate))
    ]


def not_run(name: str, work: Comparison) -> ChannelResult:
    """Returns that the question stays open: not proved, and the backend runs nothing."""
    backend = work.reference.backend.name
    reordered = work.proof if work.proof is not None and work.proof.reordered else None
    if reordered and work.numbers.met_by(Verdict.FLOOR):
        rules = f" and rules ({', '.join(reordered.rules)})" if reordered.rules else ""
        detail = f"equal up to the order of operands of float operations{rules}; {backend} runs nothing"
        return ChannelResult(name=name, verdict=Verdict.REORDERED, detail=detail)
    why = f"only reordered where {work.numbers} is required" if reordered else "not proved"
    detail = f"not compared: {why}, and {backend} runs nothing; run the case on cpu as well"
    return ChannelResult(name=name, verdict=Verdict.OPEN, detail=detail)


def ties(work: Comparison) -> str:
    """Returns in words how many tokens chose by rounding."""
    count = len(work.flips)
    return f"{count} token{'s' if count > 1 else ''} at a tie"
