"""Structure of both sides in one line each: a table for the terminal, for Markdown, and as plain data."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from parity.compare.inspection import Summary

__all__ = ["print_summaries", "summaries_markdown", "summaries_record"]

GIB = 2**30
BYTES = ("moved_bytes", "argument_bytes", "temp_bytes", "peak_bytes")
COLUMNS = ("loops", "coll", "moved GiB", "args GiB", "temp GiB", "peak GiB", "Mcycles", "compile s")


def _cells(numbers: dict[str, float | None]) -> list[str]:
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


def _rows(summary: Summary, error: str = "") -> list[list[str]]:
    """Returns one row per side and one of ratios; a side without numbers has its reason, or ``error``, instead."""
    empty = [""] * (len(COLUMNS) - 1)
    rows = [
        [side.flavour, *([error or side.error, *empty] if side.error else _cells(side.numbers))]
        for side in summary.sides
    ]
    return rows if any(side.error for side in summary.sides) else [*rows, ["ratio", *_ratios(summary)]]


def print_summaries(console: Console, summaries: Sequence[Summary]) -> None:
    """Prints two lines per case, and their ratios."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("case", overflow="fold")
    for head in ("", *COLUMNS):
        table.add_column(head, justify="right" if head else "left", overflow="fold")
    for summary in summaries:
        for place, row in enumerate(_rows(summary, error="none")):
            table.add_row(summary.id if place == 0 else f"  {summary.mesh}" if place == 1 else "", *row)
    console.print(table)
    for summary in summaries:
        for side in summary.sides:
            if side.error:
                line = f"{summary.id} {side.flavour}, {side.error}"
                console.print(line, soft_wrap=True, markup=False, highlight=False)


def summaries_markdown(summaries: Sequence[Summary]) -> str:
    """Returns the summaries as a Markdown table."""
    lines = [f"| case | side | {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * len(COLUMNS)]
    for summary in summaries:
        for place, row in enumerate(_rows(summary)):
            lines.append(f"| {f'`{summary.id}`' if place == 0 else ''} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def summaries_record(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Returns the numbers as plain data for a JSON file."""
    return {"schema": 1, "cases": [dataclasses.asdict(summary) for summary in summaries]}
