"""The channel ``memory``: argument, output and temp bytes, and the arguments that are reused in place."""

import dataclasses
from collections.abc import Mapping

from parity.builds.build import renamed
from parity.cases.budgets import MEMORY_BUDGETS, PACKING_BUDGETS, UNLIKE_BUDGETS, Budget, budgets_for
from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.channels.report_rows import memory_table
from parity.channels.structure.compare_memory import compare_memory
from parity.channels.structure.donation import compare_donation, read_donation
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.compare.unpaired import POINTER
from parity.ir.hlo.memory import Memory, read_memory
from parity.verdicts import ChannelResult, Verdict

__all__ = ["CHANNEL"]


def memory(evidence: Evidence) -> ChannelResult:
    """Compares argument, output and temp bytes of the compiled programs, and the arguments that they reuse in place."""
    sides = evidence.compiling()
    left, right = (read_memory(side.compiled) for side in sides)
    own = {**_allowance(evidence, left), **budgets_for("memory", evidence.case.accept.budgets)}
    usual = MEMORY_BUDGETS if evidence.same_program else UNLIKE_BUDGETS
    result = compare_memory(left, right, {**usual, **own})
    if result.verdict is Verdict.VACUOUS:
        return result
    measures = _ratio(left, right)
    if result.verdict is Verdict.FAILED and evidence.same_program:
        result, again = _packed(evidence, result, left, right, own)
        measures |= again
    less, more = ([array.compiled[0] for array in side] for side in evidence.unpaired)
    before, after = (read_donation(side.optimised) for side in sides)
    donation = compare_donation(before, after, (less, more), by_shape=evidence.weights.is_identity)
    failed = Verdict.FAILED in (result.verdict, donation.verdict)
    return dataclasses.replace(
        result,
        verdict=Verdict.FAILED if failed else result.verdict,
        detail=f"{result.detail}; {donation.detail}",
        findings=(*result.findings, *donation.findings),
        measures=measures,
        tables={"memory": memory_table(left, right)},
    )


def _allowance(evidence: Evidence, reference: Memory) -> dict[str, Budget]:
    """Returns budgets for one-sided RNG state, and for the table of results if leaves are merged."""
    less, more = (sum(array.size for array in side) for side in evidence.unpaired)
    merged = [POINTER * sum(map(len, side.traced.out_info.values())) for side in evidence.sides]
    fewer, further = (
        (0, 0) if evidence.weights.is_identity else (merged[0] - merged[1], merged[1] - merged[0])
    )
    budgets = {}
    for quantity, gone, added in (
        ("argument", less, more),
        ("output", less + max(fewer, 0), more + max(further, 0)),
    ):
        if gone or added:
            size = reference.values.get(quantity) or 0
            floor = max(0.0, 1 - gone / size) if size else 0.0
            reason = (
                "RNG state that one side has alone" if less or more else "leaves that are merged on one side"
            )
            budgets[quantity] = Budget(slack=added, floor=floor, reason=reason)
    return budgets


def _packed(
    evidence: Evidence, failed: ChannelResult, left: Memory, right: Memory, own: Mapping[str, Budget]
) -> tuple[ChannelResult, dict[str, float]]:
    """Checks if the candidate needs more memory only because of its argument order, which a proof leaves open.

    Returns:
        The result, which passes if so, and the measures.
    """
    within = compare_memory(left, right, {**PACKING_BUDGETS, **own})
    if within.verdict is Verdict.FAILED:
        return failed, {}
    again = read_memory(_reordered(evidence).compiled)
    same_order = compare_memory(left, again, {**MEMORY_BUDGETS, **own})
    measures = {f"{name}_in_the_same_order": value for name, value in _ratio(left, again).items()}
    if same_order.verdict is Verdict.FAILED:
        return failed, measures
    needs = f"temp {again.values['temp']:,} with its arguments in the reference's order"
    return dataclasses.replace(within, detail=f"{within.detail}, {needs}"), measures


def _reordered(evidence: Evidence) -> Side:
    """Returns the candidate with its arguments and results in the reference's order; the map must be the identity."""
    assert evidence.weights.is_identity
    names = {entry.candidate[0]: entry.reference[0] for entry in evidence.weights.entries}
    names.update({path: path for path in evidence.weights.alone[1]})
    build = renamed(evidence.candidate.build, evidence.candidate.program, names)
    return evidence.session.side(build, evidence.case, evidence.case.meshes[1])


def _ratio(reference: Memory, candidate: Memory) -> dict[str, float]:
    left, right = (side.values.get("temp") for side in (reference, candidate))
    if left is None or right is None or (left == 0 < right):
        return {}
    return {"temp_ratio": right / left if left else 1.0}


CHANNEL = Channel(
    name="memory",
    about="argument, output and temp bytes of the compiled programs; donation",
    column="mem",
    aspect=Aspect.STRUCTURE,
    needs=Need.COMPILE,
    judge=memory,
    settled=Settled.COMPILED,
)
