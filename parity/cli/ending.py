"""How a command that judges ends: its findings, and its exit code."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, USAGE, console
from parity.verdicts import BLOCKING, Verdict

if TYPE_CHECKING:
    from parity.report import Run

__all__ = ["finish"]


def finish(record: "Run", json: Path | None, blocks: frozenset[Verdict] = BLOCKING) -> None:
    """Prints the findings and ends with the exit code of the run; a verdict in ``blocks`` is a difference."""
    from parity.report import print_findings
    from parity.running.waiving import unused_in

    print_findings(console(), record.results)
    if json:
        console().print(f"report: {json}", soft_wrap=True)
    if record.partial:
        raise typer.Exit(INTERRUPTED)
    unused = unused_in(record.results)
    for sentence in unused:
        console().print(sentence, style="bold red", soft_wrap=True, markup=False, highlight=False)
    found = {channel.verdict for result in record.results for channel in result.channels.values()}
    raise typer.Exit(DIFFERENCE if found & blocks else USAGE if unused else PARITY)
