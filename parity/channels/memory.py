"""The channel ``memory``: argument, output and temp bytes, and the arguments that are reused in place."""

import collections
import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parity.cases.accepted import MEMORY_BUDGETS, PACKING_BUDGETS, UNLIKE_BUDGETS, Budget, budgets_for
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.report_rows import memory_table
from parity.channels.results import compared, span
from parity.compare.evidence import Evidence
from parity.compare.unpaired import POINTER
from parity.ir.hlo.hlo import Instruction, Shape
from parity.ir.hlo.memory import QUANTITIES, Memory, read_memory
from parity.ir.hlo.optimised import optimised_module
from parity.verdicts import ChannelResult, Finding, Verdict


@channel(column="mem", aspect=Aspect.STRUCTURE, settled_by_proof=SettledByProof.UNLESS_INSPECTED)
def memory(evidence: Evidence) -> ChannelResult:
    """Compares argument, output and temp bytes of the compiled programs, and donation."""
    sides = evidence.compiling()
    left, right = (read_memory(side.compiled) for side in sides)
    own = {**_allowance(evidence, left), **budgets_for("memory", evidence.case.accept.budgets)}
    result = compare_memory(left, right, {**_usual_budgets(evidence), **own})
    if result.verdict is Verdict.VACUOUS:
        return result
    less, more = ([array.compiled[0] for array in side] for side in evidence.unpaired)
    before, after = (read_donation(side.optimised) for side in sides)
    donation = compare_donation(before, after, (less, more), by_shape=evidence.weights.is_identity)
    return dataclasses.replace(
        result,
        verdict=Verdict.FAILED if donation.verdict is Verdict.FAILED else result.verdict,
        detail=f"{result.detail}; {donation.detail}",
        findings=(*result.findings, *donation.findings),
        tables={"memory": memory_table(left, right)},
    )


def _usual_budgets(evidence: Evidence) -> Mapping[str, Budget]:
    if not evidence.same_program:
        return UNLIKE_BUDGETS
    return MEMORY_BUDGETS if evidence.pairing and evidence.pairing.in_place else PACKING_BUDGETS


def _allowance(evidence: Evidence, reference: Memory) -> dict[str, Budget]:
    """Returns budgets for one-sided RNG state, and for the table of results if leaves are merged."""
    less, more = (sum(array.size for array in side) for side in evidence.unpaired)
    merged = [POINTER * sum(map(len, side.traced.out_info.values())) for side in evidence.sides]
    grown = 0 if evidence.weights.is_identity else merged[1] - merged[0]
    outputs = (less + max(-grown, 0), more + max(grown, 0))
    budgets = {}
    for quantity, gone, added in (("argument", less, more), ("output", *outputs)):
        if gone or added:
            size = reference.values.get(quantity) or 0
            floor = max(0.0, 1 - gone / size) if size else 0.0
            reason = (
                "RNG state that one side has alone" if less or more else "leaves that are merged on one side"
            )
            budgets[quantity] = Budget(slack=added, floor=floor, reason=reason)
    return budgets


_CAUSES = {
    "argument": "a leaf that only one side takes, or one in another dtype or sharding",
    "output": "a leaf that only one side returns, or one in another dtype or sharding",
    "temp": "residuals kept for the backward pass (remat policy, checkpoint placement) or scan outputs",
    "alias": "donation declared on one side only",
    "peak": "the same as for temp",
    "flops": "operations that only one side does or repeats (rematerialisation)",
    "bytes_accessed": "fusions that differ",
}


def compare_memory(
    reference: Memory, candidate: Memory, budgets: Mapping[str, Budget] = MEMORY_BUDGETS
) -> ChannelResult:
    """Compares the memory and cost of two programs, quantity by quantity; vacuous if neither side states any."""
    unknown = sorted(set(budgets) - set(QUANTITIES))
    if unknown:
        raise ValueError(f"memory budgets: got {unknown}, expected some of {sorted(QUANTITIES)}")
    findings, shown, missing = [], [], []
    for quantity, budget in budgets.items():
        left, right = reference.values.get(quantity), candidate.values.get(quantity)
        if left is None and right is None:
            missing.append(f"{quantity} unknown ({reference.reasons.get(quantity, 'no reason')})")
            continue
        used = ""
        if left is None or right is None or not budget.allows(left, right):
            findings.append(_finding(quantity, reference, candidate, budget))
        elif left < right:
            used = f", budget {budget.sentence()}"
            if right > left * budget.ratio:
                used += f", grown {_grown(left, right)}, which only a larger size can settle"
        words = ("unknown" if value is None else f"{value:,}" for value in (left, right))
        shown.append(f"{quantity} {span(*words)}{used}")
    if not shown:
        return ChannelResult(verdict=Verdict.VACUOUS, detail="; ".join(missing) or "no budgets")
    return compared(", ".join(shown + missing), findings)


def _grown(left: int, right: int) -> str:
    return f"{right / left:.3f} x" if left else f"{right:,} more"


def _finding(quantity: str, reference: Memory, candidate: Memory, budget: Budget) -> Finding:
    left, right = reference.values.get(quantity), candidate.values.get(quantity)
    unit = QUANTITIES[quantity]
    texts = [
        f"unknown ({side.reasons.get(quantity, 'no reason')})" if value is None else f"{value:,} {unit}"
        for side, value in ((reference, left), (candidate, right))
    ]
    distance = ""
    if left is not None and right is not None:
        limit = f"at least {budget.floor:g} x" if right < left else f"budget {budget.sentence()}"
        distance = f"{_grown(left, right)}, {limit}"
    return Finding(
        where=f"{quantity} {unit}" if unit == "bytes" else quantity,
        reference=texts[0],
        candidate=texts[1],
        distance=distance,
        cause=_CAUSES[quantity],
        next_step="compare the loops channel: its stacked outputs name the arrays"
        if quantity == "temp"
        else "",
    )


_ALIAS = re.compile(
    r"\{[\d, ]{0,99}\}:\s*\((?P<parameter>\d{1,8}),\s*\{(?P<index>[\d, ]{0,99})\}(?:,\s*(may|must)-alias)?\)"
)


def read_donation(compiled: Any) -> tuple[Shape, ...]:
    """Returns the parameters, or their parts, whose memory results reuse; dimensions are those on one device."""
    module = optimised_module(compiled)
    parameters = module.computations[module.entry].parameters
    text = module.attributes.get("input_output_alias", "{}")
    if rest := _ALIAS.sub("", text).strip("{}, \n"):
        raise ValueError(f"input_output_alias: got {rest[:60]!r}, expected 'result: (parameter, ...)'")
    found = sorted(_ALIAS.finditer(text), key=lambda match: int(match["parameter"]))
    return tuple(_reused(match, parameters) for match in found)


def _reused(match: re.Match[str], parameters: Mapping[int, Instruction]) -> Shape:
    number, index = int(match["parameter"]), [int(word) for word in re.findall(r"\d+", match["index"])]
    try:
        return functools.reduce(lambda shape, part: shape.parts[part], index, parameters[number].shape)
    except LookupError as error:
        raise ValueError(f"input_output_alias: got {match[0]!r}, expected a part of a parameter") from error


def compare_donation(
    reference: Sequence[Shape],
    candidate: Sequence[Shape],
    alone: tuple[Sequence[str], Sequence[str]] = ((), ()),
    *,
    by_shape: bool = True,
) -> ChannelResult:
    """Compares the arrays that two programs reuse, by shape and number, regardless of order.

    Args:
        alone: shapes of arrays that only one side has, the reference's and the candidate's.
        by_shape: True if both sides keep their numbers in the same arrays; if not, equal bytes suffice.

    Returns:
        Equal, or failed with the arrays that only one side reuses.
    """
    sides = (reference, candidate)
    left, right = (collections.Counter(_counter(str(one)) for one in side) for side in sides)
    sizes = {_counter(str(one)): one.bytes for side in sides for one in side}
    less, more = (collections.Counter(map(_counter, shapes)) for shapes in alone)
    findings = []
    shapes = sorted(sorted(left | right), key=lambda shape: -sizes[shape])
    shared = [shape for shape in shapes if shape not in less | more]
    if not by_shape and not sum((left[shape] - right[shape]) * sizes[shape] for shape in shared):
        shapes = [shape for shape in shapes if shape not in shared]
    for shape in shapes:
        before, after = left[shape], right[shape]
        if before == after or (before - less[shape] <= after and after - more[shape] <= before):
            continue
        side = "candidate" if after < before else "reference"
        findings.append(
            Finding(
                where=f"arguments {shape}",
                reference=f"{before} reused in place",
                candidate=f"{after} reused in place",
                distance=f"{abs(before - after) * sizes[shape]:,} bytes",
                cause=f"the {side} does not donate them, or returns them in another dtype, shape or sharding",
                next_step="compare donate_argnums and the tree channel",
            )
        )
    words = (f"{len(side)} aliased, {sum(one.bytes for one in side):,} bytes" for side in sides)
    return compared(span(*words), findings)


def _counter(shape: str) -> str:
    """Returns a shape with unsigned scalars as signed ones, because counters may be kept in either type."""
    return re.sub(r"^u(\d+)\[\]$", r"s\1[]", shape)
