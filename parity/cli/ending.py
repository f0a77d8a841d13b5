"""The end of commands that judge cases: findings, reports, and the exit code."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from parity.cli.options import DIFFERENCE, HARNESS, INTERRUPTED, PARITY, USAGE, console
from parity.verdicts import BLOCKING, Verdict

if TYPE_CHECKING:
    from parity.run.record import Run

__all__ = ["annotate", "finish", "say_reports", "show"]


def finish(
    record: "Run",
    files: Mapping[str, Path],
    unwritten: Sequence[str],
    blocks: frozenset[Verdict] = BLOCKING,
    *,
    verbose: bool = False,
) -> NoReturn:
    """Prints the findings and exits with the code of the run.

    Args:
        record: record of the run.
        files: of its reports, by name of the form.
        unwritten: a sentence for each report that could not be written.
        blocks: the verdicts that count as a difference.
        verbose: True to print every finding.
    """
    from parity.report import as_json, print_findings
    from parity.run.waiving import unused_in

    print_findings(console(), record.results, verbose=verbose)
    say_reports(files, unwritten)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(as_json(record))
    if unwritten:
        raise typer.Exit(HARNESS)
    if record.partial and not record.stopped:
        raise typer.Exit(INTERRUPTED)
    unused = [] if record.shard or record.partial else unused_in(record.results)  # another part may use it
    for sentence in unused:
        console().print(sentence, style="bold red", soft_wrap=True, markup=False, highlight=False)
    found = {channel.verdict for result in record.results for channel in result.channels.values()}
    idle = not (record.shard or record.partial) and found == {Verdict.SKIPPED}
    if idle:
        why = next(channel.detail for channel in record.results[0].channels.values())
        words = f"nothing was compared: every case was skipped ({why}); select cases that can be compared"
        console().print(words, style="bold red", soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(DIFFERENCE if found & blocks else USAGE if unused or idle else PARITY)


def say_reports(files: Mapping[str, Path], unwritten: Sequence[str]) -> None:
    """Prints the paths of the written reports, and the errors of the others.

    Args:
        files: by name of the form.
        unwritten: sentences that name the file.
    """
    for name, path in files.items():
        if not any(f"report path {path}:" in sentence for sentence in unwritten):
            console().print(f"{'report' if name == 'json' else name}: {path}", soft_wrap=True)
    for sentence in unwritten:
        console().print(sentence, style="bold red", soft_wrap=True, markup=False, highlight=False)


def show(
    report: Mapping[str, Any], files: Mapping[str, Path], earlier: Sequence[Mapping[str, Any]]
) -> NoReturn:
    """Prints a report as its run did, writes it in other forms, and exits with the run's code.

    Args:
        report: report of the run.
        files: forms to write.
        earlier: reports, the oldest first.
    """
    from parity.report import print_table
    from parity.report.restored import restore
    from parity.report.writing import write_forms

    record = restore(report)
    unwritten = write_forms(report, files, earlier)
    print_table(console(), record)
    finish(record, files, unwritten)


def annotate(report: Mapping[str, Any]) -> None:
    """Prints a report as GitHub annotations, which the runner reads from the output."""
    from parity.report.formats import FORMS

    print(FORMS["annotations"].render(report, ()), end="")
