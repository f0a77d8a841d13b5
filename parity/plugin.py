"""The pytest door: ``pytest -m parity`` runs every case as a test, with the verdicts of ``parity run``."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parity.compare.backends.environment import prepare

if TYPE_CHECKING:
    from parity.cases.case import Case
    from parity.compare.session import Session
    from parity.run.run import CaseResult

MARK = "parity"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the parity cases."""
    group = parser.getgroup("parity", "Linen-NNX parity (with -m parity)")
    group.addoption("--parity-select", action="append", default=[], metavar="GLOB", help="cases to run")
    group.addoption(
        "--parity-pair", action="append", default=[], metavar="MODULE:ATTR", help="a further pair"
    )
    group.addoption("--parity-backend", default="cpu", metavar="B", help="where to compile and run (cpu)")
    group.addoption("--parity-report", metavar="DIR", help="write parity.json into this folder")
    group.addoption("--parity-paranoid", action="store_true", help="compile and run also what is proved")


def _wanted(config: pytest.Config) -> bool:
    words = config.option.markexpr.replace("(", " ").replace(")", " ").split()
    return MARK in words and f"not {MARK}" not in " ".join(words)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark; chooses devices when cases will run, and checks the options first."""
    config.addinivalue_line("markers", f"{MARK}: a parity case; -m {MARK} collects all of them")
    if not _wanted(config):
        return
    prepare(config.option.parity_backend)
    directory = config.option.parity_report
    if directory:
        from parity.report.records import check_writable

        if "--parity-report" in config.invocation_params.args:
            raise pytest.UsageError(
                f"--parity-report {directory}: pytest takes a folder that stands by itself for one of tests; "
                f"write it with an equals sign, --parity-report={directory}"
            )
        try:
            _make_folder(Path(directory))
            check_writable(Path(directory) / "parity.json", "--parity-report")
        except (OSError, ValueError) as error:
            raise pytest.UsageError(str(error)) from error
    try:
        cases = _chosen(config)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(_Cases(config, cases), "parity-cases")


def _make_folder(folder: Path) -> None:
    """Makes a folder in one that is there; a missing parent is more likely a slip."""
    if folder.parent.is_dir() and not folder.exists():
        folder.mkdir()


def _chosen(config: pytest.Config) -> list["Case"]:
    """Returns the cases to run; in the process that starts xdist's workers too, which can still refuse.

    Raises:
        ValueError: an option, the settings or a mesh cannot be used.
    """
    from parity.cases.case import select
    from parity.cases.settings import collect, must_have_pairs
    from parity.compare.placement import place, refuse_unless_some_fit

    option = config.option
    if not (option.parity_pair or option.parity_select):
        must_have_pairs(config.invocation_params.dir)
    _, cases = collect(option.parity_pair, start=config.invocation_params.dir)
    placed = place(select(cases, option.parity_select), option.parity_backend)
    refuse_unless_some_fit(placed)
    return placed


class _Cases:
    """Collects the cases as items, runs them and writes the report."""

    def __init__(self, config: pytest.Config, cases: list["Case"]):
        self._config, self._cases = config, cases
        self._records: dict[str, dict] = {}
        self._planned = 0
        self._start = time.perf_counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Adds one item per case before marks are selected."""
        from parity.cases.settings import find_settings
        from parity.compare.backends.compiler import Resources
        from parity.compare.session import Session

        option = self._config.option
        resources = Resources(**find_settings(self._config.invocation_params.dir).resources)
        xdist = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        bench = Session(paranoid=option.parity_paranoid, compiler=resources.share(xdist).compiler())
        collector = _Matrix.from_parent(session, name=MARK, nodeid=MARK)
        items += [
            CaseItem.from_parent(collector, name=case.id, case=case, bench=bench) for case in self._cases
        ]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Counts the cases that marks and ``-k`` left."""
        self._planned = sum(isinstance(item, CaseItem) for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Counts them where xdist's workers collect."""
        self._planned = sum(id.startswith(f"{MARK}::") for id in ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the records; under xdist they arrive from the workers with the reports."""
        for name, record in report.user_properties:
            if name == MARK and report.when == "call" and isinstance(record, dict):
                self._records[record["id"]] = record

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the report, once, in the process that has all records."""
        directory = self._config.option.parity_report
        if not directory or hasattr(self._config, "workerinput"):
            return
        from parity.compare.backends.environment import describe_environment
        from parity.report.records import report, write_json

        records, seconds = list(self._records.values()), time.perf_counter() - self._start
        whole = report(records, describe_environment(), self._planned, seconds)
        write_json(whole, Path(directory) / "parity.json")


class _Matrix(pytest.Collector):
    """The parent of all cases, so that ids read ``parity::llama2-scan/...``."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yields nothing: the items are added after collection."""
        return iter(())


class CaseItem(pytest.Item):
    """One case as a test."""

    def __init__(self, *, case: "Case", bench: "Session", **rest):
        super().__init__(**rest)
        self.case, self.bench = case, bench
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Runs the case and raises with its findings unless it passes."""
        from parity.report.records import case_record
        from parity.run.run import run_case

        result = run_case(self.case, self.bench)
        self.user_properties.append((MARK, case_record(result)))
        if result.verdict == "skipped":
            pytest.skip("; ".join(channel.detail for channel in result.channels.values()))
        if result.blocking:
            raise CaseFailedError(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style=None):
        """Returns the findings, not a traceback."""
        if isinstance(excinfo.value, CaseFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Returns what pytest shows as the place of the test."""
        return self.path, None, self.case.id


class CaseFailedError(AssertionError):
    """A case did not pass; the message is what a person needs to act on."""

    def __init__(self, result: "CaseResult"):
        from parity.report.table import findings_text

        super().__init__(findings_text(result))
