"""The structure of both sides as tables of 100 columns, and as plain data."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.compare.inspection import Row, Section
from parity.report.table import STYLES, findings_text
from parity.run.run import CaseResult

__all__ = ["print_sections", "sections_record"]

SIDES = ("reference", "candidate")
HEADS = {"carry_bytes": "carry bytes", "stacked_bytes": "stacked", "total_bytes": "total bytes"}


def print_sections(console: Console, result: CaseResult, sections: Sequence[Section]) -> None:
    """Prints one table per section, then verdicts and findings of the channels.

    Args:
        console: the console.
        result: the case, evaluated on the channels of structure.
        sections: the sections to print.
    """
    case = result.case
    console.print(f"{case.id} on {case.placement.backend}", soft_wrap=True, markup=False)
    if case.placement.requested_mesh:
        console.print(
            f"mesh {case.placement.requested_mesh} fitted as {case.meshes[1]}", soft_wrap=True, markup=False
        )
    console.print(f"reference {result.reference}, candidate {result.candidate}", soft_wrap=True, markup=False)
    for section in sections:
        console.print()
        console.print(Text(section.title, "bold cyan"))
        if section.note:
            console.print(Text(section.note, "dim"), soft_wrap=True)
        console.print(_table(section) if section.rows else "none on either side")
    console.print()
    for name, channel in result.channels.items():
        verdict = Text(str(channel.verdict), STYLES.get(channel.verdict, "bold red"))
        console.print(Text(f"{name} ").append(verdict).append(f": {channel.detail}"), soft_wrap=True)
    if text := findings_text(result):
        console.print(text, soft_wrap=True, markup=False, highlight=False)


def _table(section: Section) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in section.labels:
        table.add_column(f"\n{name}", overflow="fold", justify="right" if _numeric(section, name) else "left")
    heads = {name: HEADS.get(name, name) for name in section.numbers}
    widest = max(heads, key=lambda name: len(heads[name]))
    for side in SIDES:
        for name in section.numbers:
            head = f"{side if name == widest else ''}\n{heads[name]}"
            table.add_column(head, justify="right", no_wrap=True)
    for reference, candidate in section.rows:
        known = reference or candidate or {}
        labels = [_text(known.get(name)) for name in section.labels]
        left, right = ([_number(row, name) for name in section.numbers] for row in (reference, candidate))
        marked = [Text(new, "" if old == new else "bold red") for old, new in zip(left, right, strict=True)]
        table.add_row(*labels, *left, *marked)
    return table


def _numeric(section: Section, name: str) -> bool:
    return any(
        isinstance((reference or candidate or {}).get(name), int) for reference, candidate in section.rows
    )


def _text(value: str | int | None) -> str:
    return f"{value:,}" if isinstance(value, int) else value or "unknown"


def _number(row: Row | None, name: str) -> str:
    return "-" if row is None else _text(row.get(name))


def sections_record(result: CaseResult, sections: Sequence[Section]) -> dict[str, Any]:
    """Returns the sections and the verdicts as plain data for a JSON file."""
    return {
        "channels": {name: str(channel.verdict) for name, channel in result.channels.items()},
        "sections": [dataclasses.asdict(section) for section in sections],
    }
