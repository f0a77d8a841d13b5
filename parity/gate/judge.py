"""Judges a report: the readiness of each flip, cell by cell of feature x mesh x channel."""

import collections
import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from parity.cases.accepted import Budget
from parity.cases.case import matches_none, selects
from parity.gate.flips import Feature, Flip, Rules
from parity.run.record import CaseResult, Cell, Readiness, Report, assumptions
from parity.run.waiving import PREFIX
from parity.verdicts import BLOCKING, SIDES, ChannelResult, Requirement, Verdict, grouped

READY, WAIVED, NO_QUESTION, ABSENT = "ready", "waived", "no question", "not in the record"
EVERY = "all channels"
BLOCKED = ("missing", "failed", "below", "ambiguous", "skipped")
"""Blocking states of a cell, the worst first."""
STATES = (*BLOCKED, ABSENT, WAIVED, READY, NO_QUESTION)
AMBIGUOUS = frozenset({Verdict.TIE, Verdict.UNPROVED})
LONGEST = 400

Judged = tuple[str, str, str]


def judge(
    name: str,
    report: Report,
    rules: Rules,
    planned: Collection[str],
    fallen: Mapping[str, Sequence[str]],
    part: bool = False,
) -> Readiness:
    """Returns the readiness of a flip.

    Args:
        report: as read; it may contain further cases.
        planned: ids of all existing cases; one without a result is missing.
        fallen: differences from baselines, by case.
        part: True if the report holds only some of the cases; absent ones are ``not in the record``, not ``missing``.
    """
    flip, budgets = rules.flips[name], rules.budgets(name)
    results = {case.id: case for case in report.cases}
    cells: list[Cell] = []
    touched: dict[str, None] = {}
    for label, feature in flip.parts.items():
        ids = [one for one in planned if any(selects(one, selector) for selector in feature.cases)]
        touched.update(dict.fromkeys(ids))
        cells += _absent(flip, label, feature, ids, planned)
        asked = rules.required(name, label)
        for mesh, members in grouped(ids, lambda one: one.partition("@")[2]).items():
            for channel, (required, source) in asked.items():
                found = [
                    _judged(one, results[one], channel, required, source, report)
                    if one in results
                    else (ABSENT if part else "missing", "", f"{one}: the report has no such case; run it")
                    for one in members
                ]
                cells.append(_decided((label, mesh, channel), found, rules))
    blocks = _blocks(cells)
    blocks += assumptions(results[one] for one in touched if one in results)
    for one in touched:
        others = (*fallen.get(one, ()), *_over_budget(budgets, results.get(one)))
        blocks += [f"{one}: {text}" for text in others]
    counts = collections.Counter(cell.state for cell in cells)
    return Readiness(
        name=name,
        about=flip.about,
        before={key: str(setting) for key, setting in flip.before.items()},
        after={key: str(setting) for key, setting in flip.after.items()},
        verdict="blocked" if blocks else "open" if counts[ABSENT] else READY,
        cases=len(touched),
        waived=counts[WAIVED],
        absent=counts[ABSENT],
        cells=tuple(cells),
        blocks=tuple(blocks),
    )


def _blocks(cells: Sequence[Cell]) -> list[str]:
    """Returns a sentence for the cells of a feature and mesh that block for the same reason, the worst first."""
    blocked = [cell for cell in cells if cell.state in BLOCKED]
    blocked.sort(key=lambda cell: BLOCKED.index(cell.state))
    groups = grouped(blocked, lambda cell: (cell.feature, cell.mesh, cell.state, cell.why))
    texts = []
    for (feature, mesh, state, why), held in groups.items():
        channels = ", ".join(cell.channel for cell in held)
        text = f"{feature}{mesh and f' @{mesh}'} {state}: {channels}: {why}"
        texts.append(text if len(text) <= LONGEST else f"{text[:LONGEST]} ...")
    return texts


def _absent(
    flip: Flip, name: str, feature: Feature, ids: Sequence[str], planned: Collection[str]
) -> Iterator[Cell]:
    """Yields a missing cell for each selector without a case, and each mesh glob without a matching mesh."""
    for selector in feature.cases:
        if not any(selects(one, selector) for one in ids):
            why = matches_none(selector, planned)
            yield Cell(feature=name, mesh="", channel=EVERY, state="missing", why=why)
    meshes = {one.rpartition("@")[2] for one in ids}
    for glob in flip.meshes:
        if not fnmatch.filter(meshes, glob):
            why = f"no case on a mesh {glob}; add one, or take the mesh from the flip"
            yield Cell(feature=name, mesh=glob, channel=EVERY, state="missing", why=why)


def _decided(where: tuple[str, str, str], found: Sequence[Judged], rules: Rules) -> Cell:
    """Returns the cell of some cases: the worst state, ignoring cases that skip the channel if others do not."""
    asked = [one for one in found if one[0] != "skipped"]
    state, verdict, why = min(asked or found, key=lambda one: STATES.index(one[0]))
    if state == "skipped":
        reasons = [one.reason for one in rules.gate.not_applicable if one.covers(*where)]
        state, why = (NO_QUESTION, reasons[0]) if reasons else (state, why)
    feature, mesh, channel = where
    return Cell(feature=feature, mesh=mesh, channel=channel, state=state, verdict=verdict, why=why)


def _judged(
    name: str, case: CaseResult, channel: str, required: Requirement, source: str, report: Report
) -> Judged:
    """Returns the state of one channel of one case; ``source`` is the key that requires it."""
    result = case.channels.get(channel)
    if result is None:
        return "missing", "", f"{name}: the report has no such channel; run it"
    verdict, detail = result.verdict, result.detail
    if verdict is Verdict.WAIVED:
        return _waived(name, result, report)
    if verdict not in BLOCKING and verdict is not Verdict.SKIPPED and required.met_by(verdict):
        return READY, str(verdict), ""
    first = result.findings[0].sentence() if result.findings else detail
    if verdict in BLOCKING:
        state, why = "failed", first
    elif verdict is Verdict.SKIPPED:
        state, why = "skipped", f"{detail}; declare it in not_applicable, or add a case with a result"
    else:
        state, why = ("ambiguous", first) if verdict in AMBIGUOUS else ("below", detail)
    return state, str(verdict), f"{name}: {verdict}, {source} requires {required}; {why}"


def _waived(name: str, result: ChannelResult, report: Report) -> Judged:
    """Returns the state of a waived channel; a waiver without an expiry date, or after it, blocks."""
    reasons = {
        finding.next_step.removeprefix(PREFIX)
        for finding in result.findings
        if finding.next_step.startswith(PREFIX)
    }
    ends = {waiver.reason: waiver.expires for waiver in report.waivers if not waiver.expired}
    endless = sorted(reason for reason in reasons if not ends.get(reason))
    if endless:
        why = f"{name}: the waiver {endless[0]!r} has no end, or is past it; give it expires = 2027-01-31"
        return "failed", str(Verdict.WAIVED), why
    words = "; ".join(f"{reason} (until {ends[reason]})" for reason in sorted(reasons))
    return WAIVED, str(Verdict.WAIVED), words


def _over_budget(budgets: Mapping[str, Budget], case: CaseResult | None) -> Iterator[str]:
    """Yields the quantities beyond the flip's budgets; programs that are proved equal without rules have not grown."""
    if case is None or not case.channels:
        return
    verdicts = {name: one.verdict for name, one in case.channels.items()}
    proved = verdicts.get("program") is Verdict.PROVED and not case.rows("program", "rules")
    for name, budget in budgets.items():
        channel, _, quantity = name.partition(".")
        verdict = verdicts.get(channel, Verdict.SKIPPED)
        if verdict is Verdict.PROVED or (verdict is Verdict.SKIPPED and channel != "speed"):
            continue
        numbers = _numbers(case, channel, quantity)
        if numbers is None and not proved:
            hint = f"set budgets.{name} for the project too, and " if channel == "speed" else ""
            yield f"{name}: no numbers of both sides, budget {budget.sentence()}; {hint}run the case again"
        elif numbers is not None and not budget.allows(*numbers):
            left, right = (
                f"{number:,.2f}" if isinstance(number, float) else f"{number:,}" for number in numbers
            )
            yield f"{name}: {left} -> {right}, budget {budget.sentence()}"


def _numbers(case: CaseResult, channel: str, quantity: str) -> tuple[float, float] | None:
    rows: Sequence[Any] = case.rows(channel, channel)
    pairs: list[tuple[Any, Any]]
    if channel == "memory":
        rows = [row for row in rows if row["quantity"] == quantity]
        pairs = [(row["reference"], row["candidate"]) for row in rows]
    elif channel == "speed":
        pairs = [(1.0, row["low"]) for row in rows if row["quantity"] == quantity]
    elif channel == "collectives":
        names = ("reference_count", "candidate_count") if quantity == "count" else SIDES
        pairs = [(row[names[0]], row[names[1]]) for row in rows] or [(0, 0)]
    else:
        measures: Mapping[str, Any] = case.channels[channel].measures
        pairs = [(measures.get(f"reference_{quantity}"), measures.get(f"candidate_{quantity}"))]
    if not pairs or any(None in pair for pair in pairs):
        return None
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
