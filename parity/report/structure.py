"""The output of `parity inspect`: structure and placements of one case, and a line per side of several."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.builds.tree import Role
from parity.builds.weights.map import strip_container
from parity.compare.backends.workers import GIB
from parity.compare.evidence import Evidence
from parity.compare.inspection import Row, Section
from parity.compare.layout import Placed, placed
from parity.report.table import MOST_FINDINGS, findings_text, make_table, styled
from parity.run.record import CaseResult
from parity.verdicts import SIDES, ChannelResult

HEADS = {"carry_bytes": "carry bytes", "stacked_bytes": "stacked", "total_bytes": "total bytes"}


def print_sections(console: Console, result: CaseResult, sections: Sequence[Section]) -> None:
    """Prints one table per section, then verdicts and findings of the channels."""
    lines = [f"{result.id} on {result.backend}"]
    if result.asked:
        lines.append(f"mesh {result.asked} fitted as {result.candidate_mesh or result.mesh}")
    lines.append(f"reference {result.reference}, candidate {result.candidate}")
    console.print("\n".join(lines), soft_wrap=True, markup=False)
    for section in sections:
        console.print()
        console.print(Text(section.title, "bold cyan"))
        if section.note:
            console.print(Text(section.note, "dim"), soft_wrap=True)
        console.print(_table(section) if section.rows else "none on either side")
    console.print()
    for name, channel in result.channels.items():
        console.print(_verdict(f"{name} ", channel, ": "), soft_wrap=True)
    if text := findings_text(result):
        console.print(text, soft_wrap=True, markup=False, highlight=False)


def _verdict(head: str, channel: ChannelResult, mark: str) -> Text:
    return Text(head).append(styled(channel.verdict)).append(f"{mark}{channel.detail}")


def _table(section: Section) -> Table:
    """Returns the rows, each number once for either side; the candidate's is red if it differs."""
    table = make_table(())
    known = [reference or candidate or {} for reference, candidate in section.rows]
    for name in section.labels:
        is_number = any(isinstance(row.get(name), int) for row in known)
        table.add_column(f"\n{name}", overflow="fold", justify="right" if is_number else "left")
    heads = {name: HEADS.get(name, name) for name in section.numbers}
    widest = max(heads, key=lambda name: len(heads[name]))
    for side in SIDES:
        for name, head in heads.items():
            over = side if name == widest else ""
            table.add_column(f"{over}\n{head}", justify="right", no_wrap=True)
    for labels, pair in zip(known, section.rows, strict=True):
        left, right = ([_number(row, name) for name in section.numbers] for row in pair)
        marked = [Text(new, "" if old == new else "bold red") for old, new in zip(left, right, strict=True)]
        table.add_row(*(_text(labels.get(name)) for name in section.labels), *left, *marked)
    return table


def _text(value: str | int | None) -> str:
    return f"{value:,}" if isinstance(value, int) else value or "unknown"


def _number(row: Row | None, name: str) -> str:
    return "-" if row is None else _text(row.get(name))


def print_placements(console: Console, work: Evidence, result: ChannelResult) -> None:
    """Prints the placement of every leaf with one partner, parameters first, and another placement below it."""
    console.print(_verdict(f"{work.case.id}  ", result, "  "), soft_wrap=True)
    table = make_table(("leaf", "shape", "spec"), ("bytes/device",))
    rows = [
        (placed(work.reference, entry.reference[0]), placed(work.candidate, entry.candidate[0]))
        for entry in work.weights.entries
        if len(entry.reference) == len(entry.candidate) == 1
    ]
    for role in Role:
        of_role = [row for row in rows if row[0].leaf.role is role]
        if of_role:
            table.add_row(Text(str(role), "bold cyan"))
        for reference, candidate in of_role:
            leaf, held = reference.leaf, f"{reference.bytes_per_device:,}"
            shape = "x".join(map(str, leaf.shape)) or "scalar"
            table.add_row(strip_container(leaf.path), shape, spec_text(reference), held)
            if reference.axes != candidate.axes:
                found = Text(f"candidate {spec_text(candidate)}", "bold red")
                table.add_row(Text("  differs", "bold red"), "", found, f"{candidate.bytes_per_device:,}")
    console.print(table)
    for finding in result.findings[:MOST_FINDINGS]:
        console.print(f"  {finding.sentence()}", soft_wrap=True, markup=False, highlight=False)


def spec_text(one: Placed) -> str:
    """Returns ``embed/fsdp, layers, mlp/tensor``: each dimension's name and its mesh axes."""
    if not one.leaf.logical_axes:
        return "replicated"
    named = zip(one.leaf.logical_axes, one.axes, strict=True)
    return ", ".join("/".join(filter(None, (name or "-", "+".join(axes)))) for name, axes in named)


BYTES = {
    "moved_bytes": "moved GiB",
    "argument_bytes": "args GiB",
    "temp_bytes": "temp GiB",
    "peak_bytes": "peak GiB",
}
RATIOS = (*BYTES, "cycles")


def print_summaries(console: Console, summaries: Sequence[Mapping[str, Any]]) -> None:
    """Prints two lines per case, and their ratios; the error of a side that has no numbers."""
    table = make_table(("case",))
    for head in ("", "loops", "coll", *BYTES.values(), "Mcycles", "compile s"):
        table.add_column(head, justify="right" if head else "left", overflow="fold")
    errors = []
    for one in summaries:
        sides = [side["numbers"] for side in one["sides"]]
        for side, head in zip(one["sides"], (one["id"], f"  {one['mesh']}"), strict=True):
            table.add_row(head, side["flavour"], *(["none"] if side["error"] else _cells(side["numbers"])))
        new = [f"{one['id']} {side['flavour']}, {side['error']}" for side in one["sides"] if side["error"]]
        if not new:
            table.add_row("", "ratio", "", "", *(_ratio(sides, name) for name in RATIOS))
        errors += new
    console.print(table)
    for line in errors:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _cells(numbers: Mapping[str, float | None]) -> list[str]:
    def scaled(name: str, unit: float = 1, digits: int = 0) -> str:
        value = numbers.get(name)
        return "-" if value is None else f"{value / unit:,.{digits}f}"

    loops = f"{scaled('loops_lowered')} -> {scaled('loops_optimised')}"
    sizes = [scaled(name, GIB, 3) for name in BYTES]
    return [loops, scaled("collectives"), *sizes, scaled("cycles", 1e6, 2), scaled("compile_seconds", 1, 1)]


def _ratio(sides: Sequence[Mapping[str, float | None]], name: str) -> str:
    """Returns candidate over reference; ``-`` if one of them is unknown, or the reference is zero."""
    under, over = (side.get(name) for side in sides)
    return f"{over / under:.3f}" if under and over is not None else "-"
