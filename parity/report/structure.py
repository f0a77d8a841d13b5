"""The output of `parity inspect`: structure and placements of one case, and a line per side of several."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.builds.tree import Role
from parity.builds.weights.map import strip_container
from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.inspection import Row, Section, Summary
from parity.compare.layout import Placed, placed
from parity.report.table import MOST_FINDINGS, findings_text, make_table, styled
from parity.run.run import CaseResult
from parity.verdicts import SIDES, ChannelResult

__all__ = [
    "placements",
    "print_placements",
    "print_sections",
    "print_summaries",
    "sections_record",
    "summaries_record",
]

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
        line = Text(f"{name} ").append(styled(channel.verdict)).append(f": {channel.detail}")
        console.print(line, soft_wrap=True)
    if text := findings_text(result):
        console.print(text, soft_wrap=True, markup=False, highlight=False)


def _table(section: Section) -> Table:
    table = make_table(())
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


def print_placements(
    console: Console, case: Case, result: ChannelResult, rows: Sequence[tuple[Placed, Placed]]
) -> None:
    """Prints the placement of every leaf, one line each; a second line if the candidate's differs."""
    line = Text(f"{case.id}  ").append(styled(result.verdict)).append(f"  {result.detail}")
    console.print(line, soft_wrap=True)
    table = make_table(("leaf", "shape", "spec"), ("bytes/device",))
    role = None
    for reference, candidate in rows:
        leaf = reference.leaf
        if leaf.role is not role:
            role = leaf.role
            table.add_row(Text(str(role), "bold cyan"))
        shape = "x".join(map(str, leaf.shape)) or "scalar"
        table.add_row(
            strip_container(leaf.path), shape, spec_text(reference), f"{reference.bytes_per_device:,}"
        )
        if reference.axes != candidate.axes:
            found = Text(f"candidate {spec_text(candidate)}", "bold red")
            table.add_row(Text("  differs", "bold red"), "", found, f"{candidate.bytes_per_device:,}")
    console.print(table)
    for finding in result.findings[:MOST_FINDINGS]:
        console.print(f"  {finding.sentence()}", soft_wrap=True, markup=False, highlight=False)


def spec_text(one: Placed) -> str:
    """Returns ``embed/fsdp, layers, mlp/tensor``: each dimension's name and its mesh axes."""
    leaf = one.leaf
    names = leaf.logical_axes or ("",) * len(leaf.shape)
    parts = [
        "/".join(filter(None, (name or "-", "+".join(axes))))
        for name, axes in zip(names, one.axes, strict=True)
    ]
    return ", ".join(parts) if leaf.logical_axes else "replicated"


def placements(work: Evidence) -> list[tuple[Placed, Placed]]:
    """Returns the placements on both sides of every leaf that has one partner; parameters first.

    Args:
        work: a comparison on a mesh.

    Raises:
        MapError: leaves have no partner.
    """
    rows = [
        (placed(work.reference, entry.reference[0]), placed(work.candidate, entry.candidate[0]))
        for entry in work.weights.entries
        if len(entry.reference) == len(entry.candidate) == 1
    ]
    return sorted(rows, key=lambda row: list(Role).index(row[0].leaf.role))


GIB = 2**30
BYTES = ("moved_bytes", "argument_bytes", "temp_bytes", "peak_bytes")
COLUMNS = ("loops", "coll", "moved GiB", "args GiB", "temp GiB", "peak GiB", "Mcycles", "compile s")


def _summary_cells(numbers: dict[str, float | None]) -> list[str]:
    loops = f"{_scaled(numbers, 'loops_lowered')} -> {_scaled(numbers, 'loops_optimised')}"
    sizes = [_scaled(numbers, name, GIB, 3) for name in BYTES]
    cycles = _scaled(numbers, "cycles", 1e6, 2)
    return [loops, _scaled(numbers, "collectives"), *sizes, cycles, _scaled(numbers, "compile_seconds", 1, 1)]


def _scaled(numbers: dict[str, float | None], name: str, unit: float = 1, digits: int = 0) -> str:
    value = numbers.get(name)
    return "-" if value is None else f"{value / unit:,.{digits}f}"


def _ratios(summary: Summary) -> list[str]:
    ratios = [summary.ratio(name) for name in (*BYTES, "cycles")]
    return ["", "", *("-" if ratio is None else f"{ratio:.3f}" for ratio in ratios), ""]


def _summary_rows(summary: Summary) -> list[list[str]]:
    """Returns one row per side and one of ratios; a side without numbers has ``none`` instead."""
    empty = [""] * (len(COLUMNS) - 1)
    rows = [
        [side.flavour, *(["none", *empty] if side.error else _summary_cells(side.numbers))]
        for side in summary.sides
    ]
    return rows if any(side.error for side in summary.sides) else [*rows, ["ratio", *_ratios(summary)]]


def print_summaries(console: Console, summaries: Sequence[Summary]) -> None:
    """Prints two lines per case, and their ratios."""
    table = make_table(("case",))
    for head in ("", *COLUMNS):
        table.add_column(head, justify="right" if head else "left", overflow="fold")
    for summary in summaries:
        for place, row in enumerate(_summary_rows(summary)):
            table.add_row(summary.id if place == 0 else f"  {summary.mesh}" if place == 1 else "", *row)
    console.print(table)
    for summary in summaries:
        for side in summary.sides:
            if side.error:
                line = f"{summary.id} {side.flavour}, {side.error}"
                console.print(line, soft_wrap=True, markup=False, highlight=False)


def summaries_record(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Returns the numbers as plain data for a JSON file."""
    return {"schema": 1, "cases": [dataclasses.asdict(summary) for summary in summaries]}
