"""``parity doctor``: versions, devices, backends, and remedies for missing ones."""

import typer
from rich.table import Table
from rich.text import Text

from parity.cli.options import PARITY, USAGE, console, make_request

__all__ = ["doctor"]

NARROW = 80
"""Width without a terminal."""


def doctor() -> None:
    """Show versions, devices and backends, and how to get what is missing."""
    from parity.cli.machine import diagnose

    screen, checks = console(NARROW), diagnose(make_request().resources)
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        table.add_row(check.name, check.found, Text(check.remedy, "yellow"))
    screen.print(table)
    raise typer.Exit(USAGE if any(check.needed for check in checks) else PARITY)
