"""Results of ``parity bench``, with and without ``--scaling``, as tables of 80 columns and as plain data."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from parity.compare.backends.environment import describe_environment
from parity.compare.timing.measure import Measured
from parity.compare.timing.rounds import Paired
from parity.compare.timing.scaling import HIGHEST, Curve
from parity.report.table import make_table

__all__ = ["bench_record", "print_bench", "print_curve", "print_measured", "scaling_record"]

SCHEMA, SCALING_SCHEMA = 1, 2
NEXT: Mapping[str, str] = {
    "temp bytes": "`parity inspect {id}` shows both sides' memory and loops",
    "steady step": "`parity inspect {id}` shows what compiled otherwise; on a busy machine, more --rounds",
}
USUAL = "`parity inspect {id}` shows which side has more loops; on a busy machine, more --rounds"
SAME = "the programs are proved to be the same, so the machine was busy: more --rounds"
OF_COMPILED = ("compile", "steady step")
"""Quantities that depend only on the lowered program."""
TIME = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
SIZE = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))


def _is_bytes(quantity: str) -> bool:
    return quantity.endswith("bytes") or quantity.startswith("peak")


def amount(quantity: str, value: float) -> str:
    """Returns seconds or bytes as text with a unit.

    Args:
        quantity: name of the quantity.
        value: in seconds or bytes.
    """
    units = SIZE if _is_bytes(quantity) else TIME
    unit, size = next(((unit, size) for unit, size in units if value >= size), units[-1])
    return f"{value / size:.3g} {unit}" if value < 999.5 * size else f"{value / size:,.0f} {unit}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.3g}"


def print_measured(console: Console, found: Measured) -> None:
    """Prints a case: one line per quantity, then the quantities above their bounds.

    Args:
        console: the console.
        found: the measurements.
    """
    console.print(Text(f"{found.name}: {found.id} on {found.backend}", "bold"), soft_wrap=True)
    table = make_table(("",), (*found.heads, "ratio", "quartiles", "bound"))
    above = found.above
    for name, pair in found.found.items():
        bound = f"{found.bounds[name]:.2f}" if name in found.bounds else ""
        spread = f"{_ratio(pair.low)} to {_ratio(pair.high)}" if len(pair.values) > 1 else ""
        style = "bold red" if name in above else "green" if bound else ""
        sides = (amount(name, value) for value in pair.medians)
        table.add_row(name, *sides, Text(_ratio(pair.middle), style), spread, bound)
    console.print(table)
    for name, why in found.open.items():
        console.print(Text(f"{name} not measured: {why}", "yellow"), soft_wrap=True)
    for name, ratio in above.items():
        advice = SAME if found.same and name in OF_COMPILED else NEXT.get(name, USUAL).format(id=found.id)
        words = f"above its bound: {name} {_ratio(ratio)}, at most {found.bounds[name]:.2f}; {advice}"
        console.print(Text(words, "bold red"), soft_wrap=True)


def print_bench(console: Console, found: Sequence[Measured]) -> None:
    """Prints a last line with the quantities above their bounds.

    Args:
        console: the console.
        found: all cases, already printed.
    """
    bounded = [one for one in found if one.bounds]
    above = [f"{name} of {one.id}" for one in bounded for name in one.above]
    if above:
        console.print(Text(f"above their bounds: {', '.join(above)}", "bold red"), soft_wrap=True)
    elif bounded:
        console.print(Text("all within their bounds", "green"))


def _numbers(pair: Paired) -> dict[str, Any]:
    left, right = pair.medians
    spread = {"ratio": pair.middle, "low": pair.low, "high": pair.high}
    return {"under": left, "over": right, **spread, "rounds": pair.values.tolist()}


def _environment() -> dict[str, Any]:
    return {**describe_environment(), "load": list(os.getloadavg()), "cores": os.cpu_count()}


def bench_record(found: Sequence[Measured]) -> dict[str, Any]:
    """Returns all measurements as plain data for a JSON file, with the values of every round.

    Args:
        found: all cases.
    """
    return {
        "schema": SCHEMA,
        "environment": _environment(),
        "comparisons": [
            {
                "id": one.id,
                "name": one.name,
                "sides": list(one.sides),
                "backend": one.backend,
                "mesh": one.mesh,
                "same_program": one.same,
                "quantities": {
                    name: {
                        "unit": "bytes" if _is_bytes(name) else "seconds",
                        **_numbers(pair),
                        "bound": one.bounds.get(name),
                    }
                    for name, pair in one.found.items()
                },
                "not_measured": dict(one.open),
                "above": list(one.above),
            }
            for one in found
        ],
    }


def print_curve(console: Console, curve: Curve) -> None:
    """Prints the processor time of each phase and size, the exponents, and the phases that grow too fast.

    Args:
        console: the console.
        curve: the measurements of an axis.
    """
    console.print(Text(f"processor time against {curve.axis}", "bold"))
    table = make_table(("",), (*(f"{size:,}" for size in curve.sizes), "exponent"))
    for phase, exponent in curve.exponents.items():
        style = "bold red" if phase in curve.too_fast else ""
        shown = "-" if math.isnan(exponent) else f"{exponent:.2f}"
        table.add_row(phase, *(amount(phase, value) for value in curve.seconds[phase]), Text(shown, style))
    console.print(table)
    for phase, exponent in curve.too_fast.items():
        words = f"grows too fast: {phase}, exponent {exponent:.2f}, at most {HIGHEST[curve.axis]}"
        console.print(Text(words, "bold red"), soft_wrap=True)


def scaling_record(curves: Sequence[Curve]) -> dict[str, Any]:
    """Returns all measurements as plain data for a JSON file; an exponent that cannot be fitted is null.

    Args:
        curves: the axes.
    """
    return {
        "schema": SCALING_SCHEMA,
        "environment": _environment(),
        "scaling": [
            {
                "axis": curve.axis,
                "sizes": list(curve.sizes),
                "phases": {
                    phase: {
                        "seconds": list(curve.seconds[phase]),
                        "exponent": None if math.isnan(exponent) else exponent,
                    }
                    for phase, exponent in curve.exponents.items()
                },
                "highest": HIGHEST[curve.axis],
                "too_fast": list(curve.too_fast),
            }
            for curve in curves
        ],
    }
