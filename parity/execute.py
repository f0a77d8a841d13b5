"""From what a command was asked to a record of results: finds the cases, runs them, writes the report."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from parity.backends import find
from parity.compiler import Resources
from parity.environment import describe_environment
from parity.matrix import ALL_CHANNELS, Case, Pair, place, select
from parity.parallel import Plan, run_in_workers
from parity.report import Progress, Run, as_json, write_json
from parity.report.records import check_writable
from parity.run import CaseResult, run_cases
from parity.settings import collect

__all__ = ["Order", "chosen", "execute"]

WORTH_WORKERS = 8
"""From so many cases on worker processes gain more than their start costs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What a command was asked to do.

    Args:
        select: selectors; all cases without.
        pairs: further pairs.
        settings: config fields to set in every case.
        backend: where to compile and run.
        full_size: the published sizes instead of the small ones.
        channels: what to compare.
        paranoid: compile and run also what is proved.
        workers: cases at once; None for as many as pay.
        resources: what the run may take.
        json: file of the report.
    """

    select: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    backend: str = "cpu"
    full_size: bool = False
    channels: tuple[str, ...] = ALL_CHANNELS
    paranoid: bool = False
    workers: int | None = None
    resources: Resources = dataclasses.field(default_factory=Resources)
    json: Path | None = None

    @property
    def devices(self) -> int | None:
        """For how many devices the cases are made; None for the small ones, which choose themselves."""
        return find(self.backend).topology.devices if self.full_size else None  # pyright: ignore[reportAttributeAccessIssue]


def chosen(order: Order) -> tuple[list[Pair], list[Case]]:
    """Returns all pairs and the cases to run, on their backend; checks all that can be checked before any work.

    Raises:
        ValueError: settings, selectors, backend or meshes cannot be used, or the report cannot be written.
    """
    if order.json:
        check_writable(order.json)
    if order.full_size and ":" not in order.backend:
        raise ValueError(
            f"--full-size: got backend {order.backend}, expected a slice such as aot:v5p:2x2x1; "
            "the published sizes fit no laptop"
        )
    pairs, cases = collect(order.pairs, dict(order.settings), devices=order.devices)
    return pairs, place(select(cases, order.select), order.backend)


def execute(order: Order, console: Console) -> Run:
    """Runs what was asked with live progress and writes the report, also when interrupted.

    Args:
        order: what was asked.
        console: where to show progress.

    Raises:
        ValueError: see `chosen`.
    """
    cases = chosen(order)[1]
    record = Run(environment=describe_environment(), planned=len(cases))
    start = time.perf_counter()
    try:
        with Progress(console, len(cases)) as progress:
            for result in _results(order, cases, progress):
                record.results.append(result)
                progress.finished(result)
    except KeyboardInterrupt:
        pass
    finally:
        record.seconds = time.perf_counter() - start
        places = {case.id: place for place, case in enumerate(cases)}
        record.results.sort(key=lambda result: places[result.case.id])
        if order.json:
            write_json(as_json(record), order.json)
    return record


def _results(order: Order, cases: Sequence[Case], progress: Progress) -> Iterator[CaseResult]:
    workers = order.workers or (order.resources.workers if len(cases) >= WORTH_WORKERS else 1)
    if workers == 1:
        compiler = order.resources.compiler()
        return run_cases(
            cases, progress.started, channels=order.channels, paranoid=order.paranoid, compiler=compiler
        )
    plan = Plan(
        find="parity.settings:find_cases",
        arguments=(order.pairs, order.settings, str(Path.cwd()), order.devices, order.backend),
        channels=order.channels,
        paranoid=order.paranoid,
        resources=dataclasses.replace(order.resources, workers=workers),
    )
    return run_in_workers(cases, plan, progress.started)
