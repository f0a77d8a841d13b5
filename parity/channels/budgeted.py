"""Differences in structure that a budget allows."""

import dataclasses
from collections.abc import Mapping

from parity.cases.budgets import Budget
from parity.verdicts import ChannelResult, Verdict

__all__ = ["budgeted"]


def budgeted(
    result: ChannelResult, budgets: Mapping[str, Budget], totals: Mapping[str, tuple[int, int]]
) -> ChannelResult:
    """Passes a difference if all totals that differ are budgeted and within budget; the findings stay in the record."""
    if result.verdict is not Verdict.FAILED or not set(budgets) & set(totals):
        return result
    differing = {name: numbers for name, numbers in totals.items() if numbers[0] != numbers[1]}
    if not all(name in budgets and budgets[name].allows(*numbers) for name, numbers in differing.items()):
        return result
    used = [
        f"{name} {left:,} -> {right:,}, budget {budgets[name].sentence()}"
        for name, (left, right) in totals.items()
        if name in budgets
    ]
    return dataclasses.replace(result, verdict=Verdict.EQUAL, detail=f"{result.detail}; {'; '.join(used)}")
