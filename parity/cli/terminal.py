"""Terminal output of a run: its progress, and its report, which is written after every end of the run."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from parity.cases.case import Case
from parity.report import Progress, as_json
from parity.report.reading import Record, read_report
from parity.report.writing import check_forms, write_forms
from parity.run.record import Run
from parity.run.run import CaseResult
from parity.run.schedule import Listener

__all__ = ["Reports", "Terminal"]

SHOWN = 5
"""Maximum number of changes that are listed when cases are compared again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reports:
    """The report files of a run.

    Args:
        files: by name of the form.
        earlier: reports that forms compare with, the oldest first.
    """

    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    earlier: tuple[Record, ...] = ()

    @classmethod
    def of(cls, files: Mapping[str, Path], since: Sequence[Path] | None = None) -> "Reports":
        """Returns the reports after checking the files.

        Args:
            files: by name of the form.
            since: earlier reports, the oldest first.

        Raises:
            ValueError: a file cannot be written, or an earlier report cannot be read.
        """
        check_forms(files)
        return cls(files=files, earlier=tuple(read_report(path) for path in since or ()))

    def write(self, record: Run) -> list[str]:
        """Writes the report of a run, and returns a sentence for each file that could not be written."""
        return write_forms(as_json(record), self.files, self.earlier) if self.files else []


class Terminal(Listener):
    """Shows the progress of a run, and writes its report at the end.

    Args:
        console: the console.
        reports: files of the report.
        debug: called with each error of a case, while the progress is paused.
    """

    def __init__(
        self,
        console: Console,
        reports: Reports | None = None,
        debug: Callable[[BaseException], object] = lambda error: None,
    ):
        self._console, self._reports, self._debug = console, reports or Reports(), debug
        self._progress: Progress | None = None
        self.unwritten: list[str] = []

    def begins(self, record: Run) -> None:
        """Prints why cached verdicts are not reused, and starts the progress."""
        self._print_changes("cases are compared again; changed since the last run", record.changed)
        self._progress = Progress(self._console, record.planned).__enter__()

    def started(self, case: Case) -> None:
        """Shows a case that starts."""
        if self._progress:
            self._progress.started(case)

    def raised(self, error: BaseException) -> None:
        """Opens the debugger."""
        with self._progress.paused() if self._progress else contextlib.nullcontext():
            self._debug(error)

    def finished(self, result: CaseResult) -> None:
        """Counts a case."""
        if self._progress:
            self._progress.finished(result)

    def ended(self, record: Run) -> None:
        """Ends the progress, prints why no verdict is cached, and writes the report."""
        if self._progress:
            self._progress.__exit__()
        self._print_changes("no result is kept; changed during this run", record.uncached)
        self.unwritten = self._reports.write(record)

    def _print_changes(self, words: str, labels: Sequence[str]) -> None:
        if not labels:
            return
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        text = f"cache: {words}: {', '.join(labels[:SHOWN])}{more}"
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)
