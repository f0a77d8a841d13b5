"""Compares memory of two compiled programs against ratio budgets."""

from collections.abc import Mapping

from parity.cases.budgets import MEMORY_BUDGETS, Budget
from parity.ir.hlo.memory import QUANTITIES, Memory
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["compare_memory"]


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
    """Compares the memory and cost of two programs, quantity by quantity.

    Args:
        reference: memory of the reference build.
        candidate: memory of the candidate build.
        budgets: the quantities to compare, and how far each may grow.

    Returns:
        The ``memory`` channel: equal, failed with a finding per quantity, or vacuous if neither side states any of the
        budgeted numbers.

    Raises:
        ValueError: a budget names a quantity that is not one of ``QUANTITIES``.
    """
    unknown = sorted(set(budgets) - set(QUANTITIES))
    if unknown:
        raise ValueError(f"memory budgets: got {unknown}, expected some of {sorted(QUANTITIES)}")
    findings, shown, missing = [], [], []
    for quantity, budget in budgets.items():
        left, right = reference.values.get(quantity), candidate.values.get(quantity)
        if left is None and right is None:
            missing.append(f"{quantity} unknown ({reference.reasons.get(quantity, 'no reason')})")
            continue
        fits, used = False, ""
        if left is not None and right is not None:
            fits = budget.allows(left, right)
            used = f", budget {budget.sentence()}" if fits and left < right else ""
            if fits and right > left * budget.ratio:
                used += f", grown {_grown(left, right)}, which only a larger size can settle"
        shown.append(f"{quantity} {_span(left, right)}{used}")
        if not fits:
            findings.append(_finding(quantity, reference, candidate, budget))
    if not shown:
        return ChannelResult(
            name="memory", verdict=Verdict.VACUOUS, detail="; ".join(missing) or "no budgets"
        )
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    return ChannelResult(
        name="memory", verdict=verdict, detail=", ".join(shown + missing), findings=tuple(findings)
    )


def _span(left: int | None, right: int | None) -> str:
    if left == right:
        return f"{left:,}"
    return " -> ".join("unknown" if value is None else f"{value:,}" for value in (left, right))


def _grown(left: int, right: int) -> str:
    return f"{right / left:.3f} x" if left else f"{right:,} more"


def _finding(quantity: str, reference: Memory, candidate: Memory, budget: Budget) -> Finding:
    left, right = reference.values.get(quantity), candidate.values.get(quantity)
    unit = QUANTITIES[quantity]
    texts = [
        f"unknown ({side.reasons.get(quantity, 'no reason')})" if value is None else f"{value:,} {unit}"
        for side, value in ((reference, left), (candidate, right))
    ]
    ratio = ""
    if left is not None and right is not None:
        grown = _grown(left, right)
        ratio = f"{grown}, budget {budget.sentence()}"
        if right < left:
            ratio = f"{grown}, at least {budget.floor:g} x"
    return Finding(
        where=f"{quantity} {unit}" if unit == "bytes" else quantity,
        reference=texts[0],
        candidate=texts[1],
        distance=ratio,
        cause=_CAUSES[quantity],
        next_step="compare the loops channel: its stacked outputs name the arrays"
        if quantity == "temp"
        else "",
    )
