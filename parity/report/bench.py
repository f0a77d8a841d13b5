"""Results of ``parity bench``, with and without ``--scaling``, as tables of 80 columns and as plain data."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from parity.compare.backends.environment import describe_environment
from parity.report.table import make_table

SCHEMAS = {"comparisons": 1, "scaling": 2}
ADVICE = "`parity inspect {id}` shows both sides' loops and memory; on a busy machine, more --rounds"
SAME = "the programs are proved to be the same, so the machine was busy: more --rounds"
OF_COMPILED = ("compile", "steady step")
"""Quantities that depend only on the lowered program."""
TIME = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
SIZE = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))


def amount(value: float, unit: str = "seconds") -> str:
    """Returns seconds or bytes as text."""
    units = SIZE if unit == "bytes" else TIME
    short, size = next(((short, size) for short, size in units if value >= size), units[-1])
    return f"{value / size:.3g} {short}" if value < 999.5 * size else f"{value / size:,.0f} {short}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.3g}"


def print_measured(console: Console, found: Mapping[str, Any]) -> None:
    """Prints a case: one line per quantity, then the quantities above their bounds."""
    console.print(Text(f"{found['name']}: {found['id']} on {found['backend']}", "bold"), soft_wrap=True)
    usual = any(row["bound"] is not None for row in found["quantities"].values())
    heads = ("linen", "nnx") if usual else ("under", "over")
    table = make_table(("",), (*heads, "ratio", "quartiles", "bound"))
    for name, row in found["quantities"].items():
        bound = "" if row["bound"] is None else f"{row['bound']:.2f}"
        spread = f"{_ratio(row['low'])} to {_ratio(row['high'])}" if len(row["rounds"]) > 1 else ""
        style = "bold red" if name in found["above"] else "green" if bound else ""
        sides = (amount(row[side], row["unit"]) for side in ("under", "over"))
        table.add_row(name, *sides, Text(_ratio(row["ratio"]), style), spread, bound)
    console.print(table)
    for name, why in found["not_measured"].items():
        console.print(Text(f"{name} not measured: {why}", "yellow"), soft_wrap=True)
    for name in found["above"]:
        same = found["same_program"] and name in OF_COMPILED
        advice = SAME if same else ADVICE.format(id=found["id"])
        ratio, bound = _ratio(found["quantities"][name]["ratio"]), found["quantities"][name]["bound"]
        words = f"above its bound: {name} {ratio}, at most {bound:.2f}; {advice}"
        console.print(Text(words, "bold red"), soft_wrap=True)


def print_bench(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Prints a last line with the quantities above their bounds."""
    above = [f"{name} of {one['id']}" for one in found for name in one["above"]]
    if above:
        console.print(Text(f"above their bounds: {', '.join(above)}", "bold red"), soft_wrap=True)
    elif any(row["bound"] is not None for one in found for row in one["quantities"].values()):
        console.print(Text("all within their bounds", "green"))


def print_curve(console: Console, curve: Mapping[str, Any]) -> None:
    """Prints the processor time of each phase and size, the exponents, and the phases that grow too fast."""
    console.print(Text(f"processor time against {curve['axis']}", "bold"))
    table = make_table(("",), (*(f"{size:,}" for size in curve["sizes"]), "exponent"))
    for phase, row in curve["phases"].items():
        style = "bold red" if phase in curve["too_fast"] else ""
        shown = "-" if row["exponent"] is None else f"{row['exponent']:.2f}"
        table.add_row(phase, *map(amount, row["seconds"]), Text(shown, style))
    console.print(table)
    for phase in curve["too_fast"]:
        exponent = curve["phases"][phase]["exponent"]
        words = f"grows too fast: {phase}, exponent {exponent:.2f}, at most {curve['highest']}"
        console.print(Text(words, "bold red"), soft_wrap=True)


def bench_record(name: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the report of all cases or curves, with the machine; ``name`` is their key, of `SCHEMAS`."""
    machine = {**describe_environment(), "load": list(os.getloadavg()), "cores": os.cpu_count()}
    return {"schema": SCHEMAS[name], "environment": machine, name: list(found)}
