"""Markdown for a CI step summary: verdict, counts, blocking channels, changes."""

import html
from collections.abc import Iterator, Sequence

from parity.report.changes import changes
from parity.run.record import VERDICTS, Report
from parity.verdicts import shortened

MOST_CASES, MOST_LINES, MOST_CHANGES = 30, 20, 30
MORE = "and {} more; the report has all"
LONGEST = 1_000
"""Maximum number of characters of a finding; GitHub limits a step summary to one mebibyte."""


def markdown(report: Report, earlier: Sequence[Report]) -> str:
    """Returns the report as GitHub's Markdown."""
    lines = [
        f"## Parity: {'passes' if report.passes else 'does not pass'}",
        "",
        f"{report.headline()}, {report.seconds:.0f} s.",
        "",
        *(line for words in report.assumptions for line in (_safe(words), "")),
        *_gate(report),
        *_counts(report),
        *_findings(report),
        *_rests(report),
        *(_changes(earlier[-1], report) if earlier else ()),
        f"Commit {report.environment.get('commit') or 'unknown'}.",
    ]
    return "\n".join(lines) + "\n"


def _gate(report: Report) -> Iterator[str]:
    gate = report.gate
    if not gate:
        return
    yield from _table(
        ("flip", "verdict", "cases", "cells", "waived"),
        [(one.name, one.verdict, one.cases, len(one.cells), one.waived) for one in gate.flips],
    )
    for flip in gate.flips:
        if flip.blocks:
            yield from _folded(f"{flip.name}: {len(flip.blocks)} blocks", flip.blocks)
    if gate.relaxed:
        yield from _folded(f"{len(gate.relaxed)} relaxed without an entry", gate.relaxed)


def _counts(report: Report) -> Iterator[str]:
    pairs: dict[str, dict[str, int]] = {}
    for case in report.cases:
        row = pairs.setdefault(case.id.split("/")[0].split("-")[0], dict.fromkeys(VERDICTS, 0))
        row[case.verdict] += 1
    shown = [name for name in VERDICTS if any(row[name] for row in pairs.values())]
    if shown:
        rows = [(pair, *(row[name] or "" for name in shown)) for pair, row in pairs.items()]
        yield from _table(("pair", *shown), rows)


def _findings(report: Report) -> Iterator[str]:
    held = [(case.id, found) for case in report.cases if (found := case.explanation)]
    for id, found in held[:MOST_CASES]:
        lines = shortened([line.strip() for line in found.rest], MOST_LINES, MORE)
        yield from _folded(f"{id}  {found.line}", lines)
    if len(held) > MOST_CASES:
        yield from (f"And {len(held) - MOST_CASES} more cases that do not pass; the report has all.", "")


def _rests(report: Report) -> Iterator[str]:
    found = [(case.id, first) for case in report.cases if (first := case.first_difference)]
    lines = [f"{id}: {first.sentence()}" for id, first in found]
    if found:
        head = f"{len(found)} cases pass without a proof: their first differences"
        yield from _folded(head, shortened(lines, MOST_CASES, MORE))


def _changes(earlier: Report, report: Report) -> Iterator[str]:
    found = [sentence for sentence, _ in changes(earlier, report)]
    if not found:
        yield from ("Nothing changed against the earlier report.", "")
        return
    yield from _folded(f"{len(found)} changes against the earlier report", shortened(found, MOST_CHANGES))


def _folded(head: str, lines: Sequence[str]) -> Iterator[str]:
    short = head if len(head) <= LONGEST else f"{head[:LONGEST]} ..."
    yield from (f"<details><summary>{html.escape(short, quote=False)}</summary>", "")
    yield from (f"- {_safe(line)}" for line in lines)
    yield from ("", "</details>", "")


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    for row in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(_safe(str(cell)) if cell != '---' else '---' for cell in row)} |"
    yield ""


def _safe(text: str) -> str:
    """Returns a text on one line, escaped for Markdown and HTML, and shortened."""
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    marked = "".join(f"\\{sign}" if sign in "\\`*_[]|#~@" else sign for sign in short)
    return html.escape(" ".join(marked.split()), quote=False)
