"""The channel ``loops``: while loops before and after optimisation, and what they pass through."""

import dataclasses

from parity.channels.budgeted import budgeted
from parity.channels.channel import Aspect, Channel, Need
from parity.comparison.comparison import Comparison
from parity.structure import Loops, budgets_for, compare_loops, lowered_loops, optimised_loops
from parity.structure.traced import compare_passed_through
from parity.verdicts import ChannelResult, Verdict

__all__ = ["CHANNEL"]


def loops(work: Comparison) -> ChannelResult:
    """While loops before and after optimisation; a proof leaves only the carries of the former open."""
    sides = (work.reference, work.candidate) if work.compiles_alike else work.compiling
    ours, theirs = (
        Loops(
            lowered=lowered_loops(side.lowered),
            optimised=None if work.compiles_alike else optimised_loops(side.optimised),
        )
        for side in sides
    )
    budgets = budgets_for("loops", work.case.budgets)
    slack = budgets["carry_bytes"].slack if "carry_bytes" in budgets else 0
    result = compare_loops(ours, theirs, slack)
    counts = [tree.optimised.count if tree.optimised else 0 for tree in (ours, theirs)]
    result = budgeted(result, budgets, {"count": (counts[0], counts[1])})
    returned = compare_passed_through(*(side.traced.jaxpr for side in sides))
    if returned:
        findings = (*returned, *result.findings)
        return dataclasses.replace(result, verdict=Verdict.FAILED, findings=findings)
    return result


CHANNEL = Channel(
    name="loops",
    about="while loops with trip counts and carries, before and after optimisation",
    column="loop",
    aspect=Aspect.STRUCTURE,
    needs=Need.COMPILE,
    judge=loops,
)
