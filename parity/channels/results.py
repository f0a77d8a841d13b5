"""Parts that several channels share: their usual result, one-sided findings, pairs of entries, budgets."""

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from parity.cases.accepted import Budget
from parity.compare.evidence import Evidence
from parity.ir.functions import origin
from parity.ir.location import SourceLocation
from parity.ir.makers import makers
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict

T = TypeVar("T")
STACKED = "compare the parameter's declaration, and the scan or vmap around it, on both sides"
"""The next step for a leaf with other names of leading axes only, which a scan or vmap adds."""


def compared(
    detail: str, findings: Iterable[Finding], passed: Verdict = Verdict.EQUAL, **rest: Any
) -> ChannelResult:
    """Returns the result of a channel: failed if there are findings, else ``passed``; ``rest`` are other fields."""
    found = tuple(findings)
    return ChannelResult(verdict=Verdict.FAILED if found else passed, detail=detail, findings=found, **rest)


def vacuous(findings: Iterable[Finding], detail: str = "a check that cannot fail") -> ChannelResult:
    """Returns the verdict ``vacuous``: the check cannot fail, as the findings show."""
    return ChannelResult(verdict=Verdict.VACUOUS, detail=detail, findings=tuple(findings))


def with_sources(
    evidence: Evidence, finding: Finding, paths: Sequence[str], module: Sequence[str] = ()
) -> Finding:
    """Returns a finding on a leaf whose next step names the source lines that make the leaf.

    Args:
        paths: the leaf on each side; empty if a side has none.
        module: all leaves of the module that the leaf is in, if one side lacks the module.
    """
    starts = [evidence.session.start(build) for build in evidence.builds]
    made = [
        (start.module_source(module) if module else None) or start.source(path) if path else None
        for start, path in zip(starts, paths, strict=True)
    ]
    stacked: list[SourceLocation | None] = [None, None]
    if finding.next_step == STACKED:
        stacked = [start.source(path, stacking=True) for start, path in zip(starts, paths, strict=True)]
    left, right = (outer or inner for outer, inner in zip(stacked, made, strict=True))
    shared = left and right and origin(left.own, right.own)
    named = [
        f"{'stacked' if stacked[at] else 'made'} by the {SIDES[at]} at {one.against(other, unsure=not shared)}"
        for at, one, other in ((1, right, left), (0, left, right))
        if one
    ]
    return dataclasses.replace(finding, next_step="; ".join(filter(None, [finding.next_step, *named])))


def with_makers(
    finding: Finding, how: str, runs: Sequence[Callable[[], Any]], is_made: Callable[[Any], bool]
) -> Finding:
    """Returns a finding whose next step names the user's functions that make a value.

    Args:
        how: how they make it, such as ``placed``.
        runs: for each side, the reference first, a function that makes the value.
    """
    named = [
        f"{how} by the {side} at {one}" for side, one in zip(SIDES, makers(runs, is_made), strict=True) if one
    ]
    return dataclasses.replace(finding, next_step="; ".join(filter(None, [finding.next_step, *named[::-1]])))


def span(left: str, right: str) -> str:
    """Returns the texts of both sides as one; equal texts are written once."""
    return left if left == right else f"{left} -> {right}"


def times(count: int) -> str:
    """Returns the prefix ``3 x`` of several equal entries; empty for one."""
    return f"{count} x " if count > 1 else ""


def pair_up(
    reference: Iterable[T], candidate: Iterable[T], keys: Iterable[Callable[[T], Hashable]]
) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Pairs the entries of two sides, regardless of their order.

    Args:
        keys: from the full key, whose pairs are equal, to the weakest that still joins two entries.

    Returns:
        The pairs that only a weaker key than the first joins, and the remaining entries of both sides.
    """
    left, right = dict(enumerate(reference)), dict(enumerate(candidate))
    pairs = []
    for strength, key in enumerate(keys):
        waiting: dict[Hashable, collections.deque[int]] = collections.defaultdict(collections.deque)
        for index, entry in right.items():
            waiting[key(entry)].append(index)
        for index, entry in list(left.items()):
            if waiting[key(entry)]:
                other = right.pop(waiting[key(entry)].popleft())
                left.pop(index)
                if strength:
                    pairs.append((entry, other))
    return pairs, list(left.values()), list(right.values())


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
