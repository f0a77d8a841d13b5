"""Terminal output of commands that judge cases: progress, findings, reports, and the exit code."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from parity.builds.weights.map import RuleError
from parity.cases.case import Case
from parity.cli.options import DIFFERENCE, HARNESS, INTERRUPTED, PARITY, USAGE, console, echo
from parity.report.changes import changes
from parity.report.formats import FORMS, write_forms
from parity.report.reading import read_report
from parity.report.table import print_findings, styled
from parity.run.record import CaseResult, Report
from parity.run.schedule import Listener
from parity.run.waiving import unused_in
from parity.verdicts import BLOCKING, Verdict, listed

MOST_LABELS = 5


class Terminal(Listener):
    """Shows the progress of a run, and writes its report after every end of the run.

    A line has the running case, the number of finished ones, and the time left; without a terminal each case is a line.

    Args:
        files: the report's files, by name of the form.
        earlier: reports that forms compare with, the oldest first.
    """

    def __init__(self, files: Mapping[str, Path] | None = None, earlier: Sequence[Report] = ()):
        self._files, self._earlier, self._screen = files or {}, earlier, console()
        self.unwritten: list[str] = []
        self._total, self._done = 0, 0
        self._bar = Progress(
            *(TextColumn("{task.description}"), BarColumn(14), MofNCompleteColumn()),
            *(TimeElapsedColumn(), TimeRemainingColumn()),
            console=self._screen,
            transient=True,
            disable=not self._screen.is_terminal,
            speed_estimate_period=math.inf,  # of all finished cases
        )
        self._task = self._bar.add_task("")

    def begins(self, planned: int, changed: Sequence[str]) -> None:
        """Prints why cached verdicts are not reused, and shows the line for the planned cases."""
        _say_labels("cases are compared again; changed since the last run", changed)
        self._total = planned
        self._bar.update(self._task, total=planned)
        self._bar.start()

    def started(self, case: Case) -> None:
        """Shows the case that starts."""
        self._bar.update(self._task, description=case.id[:48])

    def finished(self, result: CaseResult) -> None:
        """Counts a case; one that did not pass is printed at once, its findings follow after the table."""
        self._done += 1
        self._bar.update(self._task, advance=1)
        if self._bar.disable or result.blocking:
            line = Text(f"[{self._done}/{self._total}] {result.id} ")
            line.append(styled(result.verdict))
            names = ", ".join(channel.name for channel in result.blocking)
            self._screen.print(line.append(f": {names}" if names else "", "red"), soft_wrap=True)

    def ended(self, report: Report, changed: Sequence[str]) -> None:
        """Removes the line, prints why no verdict is cached, and writes the report."""
        self._bar.stop()
        _say_labels("no result is kept; changed during this run", changed)
        self.write(report)

    def write(self, report: Report) -> None:
        """Writes the report; `unwritten` then has a sentence for each file that could not be written."""
        self.unwritten = write_forms(report, self._files, self._earlier) if self._files else []


def _say_labels(words: str, labels: Sequence[str]) -> None:
    if labels:
        echo(f"cache: {words}: {listed(labels, MOST_LABELS)}")


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
    channels = [channel for case in report.cases for channel in case.channels.values()]
    found = {channel.verdict for channel in channels if channel.detail != RuleError.__name__}
    misused = any(channel.detail == RuleError.__name__ for channel in channels)
    idle = not (part or misused) and found == {Verdict.SKIPPED}
    if idle:
        why = next(channel.detail for channel in report.cases[0].channels.values())
        words = f"nothing was compared: every case was skipped ({why}); select cases that can be compared"
        echo(words, "bold red")
    raise typer.Exit(DIFFERENCE if found & blocks else USAGE if misused or unused or idle else PARITY)


def end_reports(files: Mapping[str, Path], unwritten: Sequence[str], report: Report) -> None:
    """Prints the paths of the reports, and on GitHub annotations; exits if a report could not be written."""
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
