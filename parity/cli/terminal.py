"""Terminal output of commands that judge cases: progress, findings, reports, and the exit code."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import typer

from parity.cli.options import DIFFERENCE, HARNESS, INTERRUPTED, PARITY, USAGE, console, echo
from parity.report.changes import changes
from parity.report.formats import FORMS, write_forms
from parity.report.reading import read_report
from parity.report.table import Progress, print_findings
from parity.run.record import Report
from parity.run.waiving import unused_in
from parity.verdicts import BLOCKING, Verdict, listed

SHOWN = 5
"""Maximum number of changes that are listed when cases are compared again."""


class Terminal(Progress):
    """Shows the progress of a run, and writes its report after every end of the run.

    Args:
        files: the report's files, by name of the form.
        earlier: reports that forms compare with, the oldest first.
    """

    def __init__(self, files: Mapping[str, Path] | None = None, earlier: Sequence[Report] = ()):
        super().__init__(console())
        self._files, self._earlier = files or {}, earlier
        self.unwritten: list[str] = []

    def begins(self, planned: int, changed: Sequence[str]) -> None:
        """Prints why cached verdicts are not reused, and starts the progress."""
        _say_labels("cases are compared again; changed since the last run", changed)
        super().begins(planned, changed)

    def ended(self, report: Report, changed: Sequence[str]) -> None:
        """Ends the progress, prints why no verdict is cached, and writes the report."""
        super().ended(report, changed)
        _say_labels("no result is kept; changed during this run", changed)
        self.write(report)

    def write(self, report: Report) -> None:
        """Writes the report; `unwritten` then has a sentence for each file that could not be written."""
        self.unwritten = write_forms(report, self._files, self._earlier) if self._files else []


def _say_labels(words: str, labels: Sequence[str]) -> None:
    if labels:
        echo(f"cache: {words}: {listed(labels, SHOWN)}")


def finish(
    report: Report,
    files: Mapping[str, Path],
    unwritten: Sequence[str],
    blocks: frozenset[Verdict] = BLOCKING,
    *,
    verbose: bool = False,
) -> NoReturn:
    """Prints the findings and exits with the code of the run."""
    print_findings(console(), report.cases, verbose=verbose)
    end_reports(files, unwritten, report)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    part = report.shard or report.partial
    unused = [] if part else unused_in(report)  # another part may use it
    for sentence in unused:
        echo(sentence, "bold red")
    found = {channel.verdict for case in report.cases for channel in case.channels.values()}
    idle = not part and found == {Verdict.SKIPPED}
    if idle:
        why = next(channel.detail for channel in report.cases[0].channels.values())
        words = f"nothing was compared: every case was skipped ({why}); select cases that can be compared"
        echo(words, "bold red")
    raise typer.Exit(DIFFERENCE if found & blocks else USAGE if unused or idle else PARITY)


def end_reports(files: Mapping[str, Path], unwritten: Sequence[str], report: Report) -> None:
    """Prints the paths of the written reports and the errors of the others; on GitHub also the annotations.

    Exits if a report could not be written.
    """
    for name, path in files.items():
        if not any(f"report path {path}:" in sentence for sentence in unwritten):
            echo(f"{'report' if name == 'json' else name}: {path}")
    for sentence in unwritten:
        echo(sentence, "bold red")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(FORMS["annotations"](report, ()), end="")  # the runner reads the output
    if unwritten:
        raise typer.Exit(HARNESS)


def read_earlier(since: Sequence[Path] | None) -> list[Report]:
    """Returns the reports of ``--since``, the oldest first."""
    return [read_report(path) for path in since or ()]


def say_changes(earlier: Sequence[Report], report: Report) -> None:
    """Prints the changes since the latest of some earlier reports."""
    for sentence, worse in changes(earlier[-1], report) if earlier else ():
        echo(sentence, "bold red" if worse else "")
