"""Terminal output of the gate: a line per flip, and tables of blocked or named flips."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from parity.report.table import COLUMNS, legend, make_table
from parity.run.record import Judgement, Readiness
from parity.verdicts import listed, shortened

MOST_BLOCKS, MOST_PLACES = 12, 2
MARKS = {
    "ready": ("ok", "green"),
    "waived": ("waived", "yellow"),
    "no question": ("-", "dim"),
    "not in the record": ("?", "yellow"),
    "missing": ("MISS", "bold red"),
    "failed": ("FAIL", "bold red"),
    "below": ("LOW", "bold red"),
    "ambiguous": ("AMB", "bold red"),
    "skipped": ("SKIP", "bold red"),
}
HEADS = {names[0]: head for head, names in COLUMNS.items()}
"""The first channel of each column of `parity run` -> its head; other channels have their names."""


def print_gate(console: Console, gate: Judgement, named: Sequence[str] = ()) -> None:
    """Prints the results of a gate."""
    for flip in gate.flips:
        if flip.name in named or flip.blocks:
            _print_flip(console, flip)
    table = make_table(("flip", "verdict"), ("cases", "cells", "waived", "blocks"))
    for flip in gate.flips:
        style = {"blocked": "bold red", "open": "yellow"}.get(flip.verdict, "bold green")
        counts = (flip.cases, len(flip.cells), flip.waived, len(flip.blocks))
        table.add_row(flip.name, Text(flip.verdict, style), *map(str, counts))
    if looser := len(gate.relaxed):
        table.add_row("looser settings", Text("blocked", "bold red"), "", "", "", str(looser))
    console.print(table)
    for flip in gate.flips:
        found = [cell for cell in flip.cells if cell.state == "not in the record"]
        places = list(dict.fromkeys(f"{cell.feature} @{cell.mesh or 'any'}" for cell in found))
        if found:
            words = f"{len(found)} of {len(flip.cells)} cells are not in the record"
            text = f"{flip.name}: {words}: {listed(places, MOST_PLACES)}"
            console.print(Text(text, "yellow"), soft_wrap=True)
    for text in gate.relaxed:
        console.print(Text(text, "bold red"), soft_wrap=True)
    for text in gate.notes:
        console.print(Text(text, "dim"), soft_wrap=True)


def _print_flip(console: Console, flip: Readiness) -> None:
    sides = (flip.before, flip.after)
    settings = [", ".join(f"{name}={value}" for name, value in side.items()) for side in sides]
    change = " -> ".join(settings) if any(settings) else ""
    head = Text(flip.name, "bold cyan").append(f"  {flip.about}", "default").append(f"  {change}", "dim")
    console.print(head, soft_wrap=True)
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for cell in flip.cells:
        rows.setdefault((cell.feature, cell.mesh), {})[cell.channel] = cell.state
    channels = dict.fromkeys(cell.channel for cell in flip.cells if cell.channel != "all channels")
    table = make_table(("feature",))
    table.add_column("mesh", overflow="fold", ratio=1)
    for channel in channels:
        table.add_column(str(HEADS.get(channel, channel)), no_wrap=True)
    for (feature, mesh), states in rows.items():
        every = states.get("all channels")
        cells = [Text(*MARKS[states.get(channel) or every or "no question"]) for channel in channels]
        table.add_row(feature, mesh or "any", *cells)
    console.print(table)
    shown = {cell.state for cell in flip.cells}
    marks = ((mark, state) for state, (mark, _) in MARKS.items() if state in shown)
    console.print(legend(marks), soft_wrap=True)
    for block in shortened(flip.blocks, MOST_BLOCKS, "... and {} more; the JSON report lists all"):
        console.print(Text(f"  {block}", "red"), soft_wrap=True)
    for text in dict.fromkeys(cell.why for cell in flip.cells if cell.state == "waived"):
        console.print(Text(f"  waived: {text}", "yellow"), soft_wrap=True)
    console.print()
