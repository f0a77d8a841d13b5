"""The pytest entry point: ``pytest -m parity`` runs every case as a test, in the same way as ``parity run``."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark.expression import (
    Expression,  # private, but from pytest 8 to 9 the same: see `_is_requested`
)

from parity.compare.backends.environment import prepare

if TYPE_CHECKING:
    from parity.cases.case import Case
    from parity.run.record import CaseResult
    from parity.run.request import Request

MARK = "parity"
CALLED = pytest.StashKey[tuple[int, Sequence[str]]]()
"""Clock in nanoseconds before pytest imported any file of the project, and the arguments of the command line."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the parity cases, named as those of ``parity run``."""
    group = parser.getgroup("parity", "Linen-NNX parity (with -m parity)")
    for name, metavar, text in (
        ("select", "GLOB", "cases to run"),
        ("pair", "MODULE:ATTR", "a further pair"),
        ("set", "FIELD=VALUE", "override a config field"),
        ("require", "RUNG", "lowest rung of any case"),
    ):
        group.addoption(f"--parity-{name}", action="append", default=[], metavar=metavar, help=text)
    group.addoption("--parity-backend", default="cpu", metavar="B", help="where to compile and run (cpu)")
    group.addoption("--parity-report", metavar="DIR", help="write parity.json into this folder")
    group.addoption("--parity-paranoid", action="store_true", help="compile and run also what is proved")
    group.addoption(
        "--parity-cached",
        action="store_true",
        help="reuse the verdicts of passed cases, as long as nothing has changed",
    )


def _names_mark(expression: str) -> bool:
    """True if an expression of ``-m`` names the mark; ``not slow`` also selects cases, but does not request them."""
    return MARK in re.split(r"[\s()]+", expression)


def _is_requested(expression: str) -> bool:
    """True if an expression of ``-m`` names the mark, and selects an item that has it and no other mark.

    A malformed one is a UsageError here; pytest itself would report it only after collecting the tests.
    """
    if not _names_mark(expression):
        return False
    try:
        compiled = Expression.compile(expression)
    except Exception as error:  # its type depends on pytest's version
        raise pytest.UsageError(f"Wrong expression passed to '-m': {expression}: {error}") from error
    return compiled.evaluate(lambda name, /, **fields: name == MARK and not fields)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Starts to record opened files before the project's code runs: cached verdicts depend on them."""
    option = early_config.known_args_namespace
    if option.parity_cached and _names_mark(option.markexpr):
        from parity.run.manifest import watch

        words = tuple(word for word in args if not word.startswith("--basetemp="))  # not an input of any case
        early_config.stash[CALLED] = time.time_ns(), words
        watch()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark; if cases will run, chooses devices and checks the options."""
    config.addinivalue_line("markers", f"{MARK}: a parity case; -m {MARK} collects all of them")
    if not _is_requested(config.option.markexpr):
        return
    prepare(config.option.parity_backend)
    try:
        _check_report(config)
        cases = _Cases(config, _request(config))
    except (OSError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(cases, "parity-cases")


def _check_report(config: pytest.Config) -> None:
    """Raises OSError or ValueError if the report cannot be written; makes its folder if only that is missing."""
    from parity.report.records import check_writable

    directory = config.option.parity_report
    if not directory:
        return
    if "--parity-report" in config.invocation_params.args:
        raise ValueError(
            f"--parity-report {directory}: pytest takes a folder that stands by itself for one of tests; "
            f"write it with an equals sign, --parity-report={directory}"
        )
    folder = Path(directory)
    if folder.parent.is_dir() and not folder.exists():  # a missing parent is more likely a slip
        folder.mkdir()
    check_writable(folder / "parity.json", "--parity-report")


def _request(config: pytest.Config) -> "Request":
    """Returns the run request of the options; each xdist worker gets its share of the machine."""
    from parity.cases.settings import must_have_pairs, parse_settings
    from parity.run.request import CacheMode, Request
    from parity.verdicts import ANY_RUNG, Requirement

    option, start = config.option, config.invocation_params.dir
    if not (option.parity_pair or option.parity_select):
        must_have_pairs(start)
    starts_workers = getattr(option, "dist", "no") != "no"  # and runs nothing itself
    cached = option.parity_cached and not starts_workers
    if cached and CALLED not in config.stash:
        raise ValueError(
            "--parity-cached: parity.plugin was loaded by a conftest; load it with -p parity.plugin"
        )
    request = Request.of(
        start,
        select=tuple(option.parity_select),
        pairs=tuple(option.parity_pair),
        settings=tuple(parse_settings(option.parity_set, option="--parity-set").items()),
        backend=option.parity_backend,
        paranoid=option.parity_paranoid,
        required=Requirement.of(option.parity_require or ANY_RUNG, "--parity-require"),
        cache=CacheMode.REUSE if cached else CacheMode.IGNORE,
        context=repr(config.stash[CALLED][1]) if cached else "",
        written=(Path(option.parity_report, "parity.json"),) if option.parity_report else (),
    )
    return request.share(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


class _Cases:
    """Collects the cases as items, runs them and writes the report.

    It also collects in the process that starts xdist's workers, so that a wrong option is refused there.
    """

    def __init__(self, config: pytest.Config, request: "Request"):
        from parity.run.run import case_runner
        from parity.run.schedule import Schedule

        self._config, self._schedule = config, Schedule(request)
        self._run_case = case_runner(self._schedule.request, self._schedule.backend)
        self._uncached: list[str] = []
        if manifest := self._schedule.cache.manifest:  # modules imported before it was made may be older
            self._schedule.cache.refuse(manifest.later_than(config.stash[CALLED][0]))
        self._results: dict[str, CaseResult] = {}
        self._planned = 0
        self._start = time.perf_counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Adds one item per case before marks are selected."""
        collector = _Matrix.from_parent(session, name=MARK, nodeid=MARK)
        items += [
            CaseItem.from_parent(collector, name=case.id, case=case, run=self._run)
            for case in self._schedule.cases
        ]

    def _run(self, case: "Case") -> "CaseResult":
        if known := self._schedule.cache.reused(case):
            return known
        result = self._run_case(case)
        self._schedule.cache.keep(result)
        return result

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Disables caching once another test has run in this process: it may have changed the models."""
        if not isinstance(item, CaseItem):
            self._schedule.cache.refuse([f"another test ran in this process: {item.nodeid}"])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Counts the cases that ``-m`` and ``-k`` selected."""
        self._planned = sum(isinstance(item, CaseItem) for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Counts the cases that xdist's workers collected."""
        self._planned = sum(id.startswith(f"{MARK}::") for id in ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Stores the results; under xdist they arrive from the workers with the reports, as plain data."""
        import msgspec

        from parity.run.record import CaseResult

        for name, record in report.user_properties:
            if name == MARK and report.when == "call" and isinstance(record, dict):
                self._results[record["id"]] = msgspec.convert(record, CaseResult)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints guesses behind passes, the number of cached verdicts, and why none is cached now."""
        if self._results:
            from parity.run.record import assumptions

            for words in assumptions(self._results.values()):
                terminalreporter.write_line(f"parity: {words}")
        cached = sum(result.remembered for result in self._results.values())
        if cached:
            terminalreporter.write_line(f"parity: {cached} of {len(self._results)} verdicts from the cache")
        if self._uncached:
            changes = ", ".join(self._uncached[:3])
            terminalreporter.write_line(f"parity: no verdict is cached; changed during this run: {changes}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Caches verdicts, and writes the report in the one process that has all records."""
        self._uncached = self._schedule.cache.store()
        directory = self._config.option.parity_report
        if not directory or hasattr(self._config, "workerinput"):
            return
        from parity.report.records import write_json

        seconds = time.perf_counter() - self._start
        report = self._schedule.report(self._results.values(), seconds, self._planned)
        write_json(report, Path(directory) / "parity.json")


class _Matrix(pytest.Collector):
    """The parent of all cases, so that ids read ``parity::llama2-scan/...``."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yields nothing: the items are added after collection."""
        return iter(())


class CaseItem(pytest.Item):
    """One case as a test; ``run`` runs it."""

    def __init__(self, *, case: "Case", run: "Callable[[Case], CaseResult]", **rest: Any):
        super().__init__(**rest)
        self.case, self.run = case, run
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Runs the case and raises with its findings unless it passes."""
        from parity.report.table import findings_text
        from parity.verdicts import plain

        result = self.run(self.case)
        self.user_properties.append((MARK, plain(result)))
        if result.verdict == "skipped":
            pytest.skip("; ".join(channel.detail for channel in result.channels.values()))
        if result.blocking:
            pytest.fail(findings_text(result), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Returns the location of the test that pytest shows."""
        return self.path, None, self.case.id
