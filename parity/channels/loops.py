"""The channel ``loops``: while loops before and after optimisation, and the arrays that they pass through."""

import dataclasses
from pathlib import Path

import flax

from parity.cases.budgets import MEMORY_BUDGETS, budgets_for
from parity.channels.budgeted import budgeted
from parity.channels.channel import Aspect, Channel, Need
from parity.channels.report_rows import loop_table
from parity.channels.structure.compare_loops import Loops, compare_loops
from parity.channels.structure.compare_memory import compare_memory
from parity.channels.structure.traced import compare_passed_through
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.stablehlo.lowered import lowered_loops
from parity.verdicts import ChannelResult, Row, Verdict

__all__ = ["CHANNEL"]

FLAX = str(Path(flax.__file__).parent)


def loops(evidence: Evidence) -> ChannelResult:
    """Compares while loops before and after optimisation; a proof leaves only the carries of the lowered loops open."""
    sides = evidence.sides if evidence.proof_covers_compiled else evidence.compiling()
    left, right = (
        Loops(
            lowered=lowered_loops(side.functions),
            optimised=None if evidence.proof_covers_compiled else optimised_loops(side.optimised),
        )
        for side in sides
    )
    budgets = budgets_for("loops", evidence.case.accept.budgets)
    slack = budgets["carry_bytes"].slack if "carry_bytes" in budgets else 0
    arrays = [array for side in evidence.unpaired for array in side]
    equal_memory = evidence.proof_covers_compiled or _needs_no_more(*evidence.compiling())
    library = FLAX if equal_memory else ""
    slack = max(slack, 2 * sum(array.size for array in arrays))
    carried = {words for array in arrays for words in array.compiled}
    traced = {words for array in arrays for words in array.traced}
    result = compare_loops(left, right, slack, carried=carried, library=library)
    counts = [tree.optimised.count if tree.optimised else 0 for tree in (left, right)]
    result = budgeted(result, budgets, {"count": (counts[0], counts[1])})
    returned, notes = compare_passed_through(sides[0].traced.jaxpr, sides[1].traced.jaxpr, traced, library)
    notes = (*notes, *result.notes)
    result = dataclasses.replace(result, notes=notes, tables=_tables(left, right, result))
    if returned:
        findings = (*returned, *result.findings)
        return dataclasses.replace(result, verdict=Verdict.FAILED, findings=findings)
    return result


def _tables(left: Loops, right: Loops, result: ChannelResult) -> dict[str, list[Row]]:
    """Returns the trees of loops; empty for equal programs that were not compiled, to keep records small."""
    stages = [(getattr(left, stage), getattr(right, stage)) for stage in ("lowered", "optimised")]
    if stages[1][0] is None and result.verdict is Verdict.EQUAL:
        return {}
    return {"loops": [row for one, other in stages if one and other for row in loop_table(one, other)]}


def _needs_no_more(reference: Side, candidate: Side) -> bool:
    """Returns True if the candidate's compiled program needs no more temporary memory than the reference's."""
    budgets = {"temp": MEMORY_BUDGETS["temp"]}
    left, right = (read_memory(side.compiled) for side in (reference, candidate))
    return compare_memory(left, right, budgets).verdict is Verdict.EQUAL


CHANNEL = Channel(
    name="loops",
    about="while loops with trip counts and carries, before and after optimisation",
    column="loop",
    aspect=Aspect.STRUCTURE,
    needs=Need.COMPILE,
    judge=loops,
)
