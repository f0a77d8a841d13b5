"""The cost over sizes as tables of 80 columns, and as plain data."""

import math
import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.compare.backends.environment import describe_environment
from parity.compare.timing.scaling import HIGHEST, Curve
from parity.report.bench import amount

__all__ = ["print_curve", "scaling_record"]

SCHEMA = 2


def print_curve(console: Console, curve: Curve) -> None:
    """Prints the processor time of each phase and size, the exponents, and the phases that grow too fast.

    Args:
        console: the console.
        curve: the measurements of an axis.
    """
    console.print(Text(f"processor time against {curve.axis}", "bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for head in (*(f"{size:,}" for size in curve.sizes), "exponent"):
        table.add_column(head, justify="right", no_wrap=True)
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
        "schema": SCHEMA,
        "environment": {**describe_environment(), "load": list(os.getloadavg()), "cores": os.cpu_count()},
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
