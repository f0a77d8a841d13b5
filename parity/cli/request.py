"""From what a command was asked to a record of results: finds the cases, runs them, writes the report."""

import contextlib
import dataclasses
import enum
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from parity.builds.meshes import MeshSpec
from parity.cases.case import Case, Pair, select
from parity.cases.settings import collect, find_settings
from parity.channels import ALL
from parity.compare.backends.cache import default_folder
from parity.compare.backends.compiler import Resources
from parity.compare.backends.environment import PLATFORMS, describe_environment
from parity.compare.backends.ray_cluster import OWN, check_address
from parity.compare.backends.registry import find
from parity.compare.evidence import Evidence
from parity.compare.placement import place, refuse_unless_some_fit
from parity.compare.session import Session
from parity.compare.summary import Summary, summarise_case
from parity.report import Progress, Run, as_json
from parity.report.reading import read_report
from parity.report.shards import Shard
from parity.report.writing import check_forms, write_forms
from parity.run.manifest import Manifest, project_of
from parity.run.outside import opened, watch
from parity.run.parallel import Plan, run_in_workers
from parity.run.processes import check_processes, run_in_processes
from parity.run.remote import run_on_ray
from parity.run.run import CaseResult, run_each
from parity.run.verdict_cache import VerdictCache, disagreement
from parity.verdicts import ANY_RUNG, Requirement

__all__ = ["Recall", "Request", "chosen", "execute", "rewrite", "summarise_cases"]

WORTH_WORKERS = 8
"""From so many cases on worker processes gain more than their start costs."""
SHOWN = 5
"""Changes that are named when cases are compared again."""


class Recall(enum.StrEnum):
    """What to do with verdicts of earlier runs: nothing, use them, decide some of them again, or all anew."""

    NONE = "none"
    USE = "use"
    VERIFY = "verify"
    FRESH = "fresh"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a command was asked to do.

    Args:
        select: selectors; all cases without.
        pairs: further pairs.
        settings: config fields to set in every case.
        backend: where to compile and run.
        full_size: the published sizes instead of the small ones.
        channels: what to compare.
        paranoid: compile and run also what is proved.
        required: rungs that cases of one structure may rest on.
        workers: cases at once; None for as many as pay.
        processes: how many run each case together.
        ray: the Ray cluster whose workers run the cases, see `parity.compare.backends.ray_cluster`; None for none.
        resources: what the run may take.
        json: file of the report.
        forms: files of its other forms, by name.
        since: earlier reports that forms compare with, the oldest first.
        shard: which part of the cases to run; None for all.
        memory: what to do with verdicts of earlier runs.
        only: ids of the cases to run of those that are selected; None for all.
        fail_fast: end with the first case that does not pass.
        debug: is given each error of a case, with the terminal to itself; needs one process.
    """

    select: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    backend: str = "cpu"
    full_size: bool = False
    channels: tuple[str, ...] = ALL
    paranoid: bool = False
    required: Requirement = ANY_RUNG
    workers: int | None = None
    processes: int = 1
    ray: str | None = None
    resources: Resources = dataclasses.field(default_factory=Resources)
    json: Path | None = None
    forms: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    since: tuple[Path, ...] = ()
    shard: Shard | None = None
    memory: Recall = Recall.NONE
    only: frozenset[str] | None = None
    fail_fast: bool = False
    debug: Callable[[BaseException], object] | None = None

    @property
    def files(self) -> dict[str, Path]:
        """All files of the report by name of the form."""
        return {**({"json": self.json} if self.json else {}), **self.forms}

    @property
    def options(self) -> str:
        """All that a verdict depends on beside the state of the project, as text."""
        names = ("pairs", "backend", "settings", "full_size", "channels", "paranoid", "required")
        return repr([(name, getattr(self, name)) for name in names])

    @property
    def devices(self) -> int | None:
        """For how many devices the cases are made; None for the small ones, which choose themselves."""
        topology = find(self.backend).topology
        return topology.devices if self.full_size and topology else None


def chosen(order: Request) -> tuple[list[Pair], list[Case]]:
    """Returns all pairs and the cases to run, on their backend; checks all that can be checked before any work.

    Raises:
        ValueError: settings, selectors, backend or meshes cannot be used, or the report cannot be written.
    """
    check_forms(order.files)
    backend = find(order.backend)
    elsewhere = (
        order.ray is not None and order.backend in PLATFORMS
    )  # meshes are fitted where the devices are
    if order.ray is not None:
        _check_ray(order, order.ray)
    if not elsewhere:
        backend.fit(MeshSpec())  # says what is missing before anything is imported or built
    if order.full_size and not backend.topology:
        raise ValueError(
            f"--full-size: got backend {order.backend}, expected a slice such as aot:v5p:2x2x1; "
            "the published sizes fit no laptop"
        )
    if order.backend in PLATFORMS and (order.workers or 1) > 1 and not elsewhere:
        raise ValueError(
            f"--workers {order.workers}: backend {order.backend} belongs to one process; leave it out"
        )
    pairs, cases = collect(order.pairs, dict(order.settings), devices=order.devices, select=order.select)
    cases = select(cases, order.select)
    if order.only is not None:
        cases = [case for case in cases if case.id in order.only]
    if elsewhere:
        cases = [dataclasses.replace(case, backend=order.backend) for case in cases]
    else:
        cases = place(cases, order.backend)
    refuse_unless_some_fit(cases)
    if order.processes > 1:
        if order.backend != "cpu" or order.workers:
            raise ValueError(
                "--processes: runs on cpu, one case at a time; leave out --backend and --workers"
            )
        check_processes(order.processes)
    return pairs, cases


def _check_ray(order: Request, address: str) -> None:
    if order.processes > 1:
        raise ValueError("--ray: got --processes, expected one process a case; leave one of them out")
    if order.workers and address != OWN:
        raise ValueError(f"--workers: the cluster at {address} says how many cases run at once; leave it out")
    if order.memory is not Recall.NONE and address != OWN:
        raise ValueError(f"--cached: what the machines of {address} read is not seen here; leave it out")
    check_address(address)


def execute(order: Request, console: Console) -> Run:
    """Runs what was asked with live progress and writes the report, also when interrupted.

    Args:
        order: what was asked.
        console: where to show progress.

    Raises:
        ValueError: see `chosen`.
    """
    earlier = [read_report(path) for path in order.since]
    manifest = _manifest(order)
    every = chosen(order)[1]
    cases = order.shard.take(every) if order.shard else every
    watched = manifest.folders if manifest else ()
    memory = VerdictCache(manifest, order.options) if manifest else None
    known, again = _remembered(order, cases, memory)
    if memory and (changed := memory.since_last()) and len(known) < len(cases):
        _print_changes(console, "cases are compared again; changed since the last run", changed)
    waiting = [case for case in cases if case.id not in known or case.id in again]
    together = {"processes": order.processes} if order.processes > 1 else {}
    asked = {"settings": dict(order.settings)} if order.settings else {}
    record = Run(environment={**describe_environment(), **together, **asked}, planned=len(cases))
    start = time.perf_counter()
    try:
        with Progress(console, len(cases)) as progress:
            for result in itertools.chain(
                (known[case.id] for case in cases if case not in waiting),
                _results(order, waiting, progress, watched),
            ):
                record.results.append(result)
                progress.finished(result)
                if memory:
                    memory.keep(result)
                if result.case.id in again and (words := disagreement(known[result.case.id], result)):
                    record.disagreements.append(words)
                if order.fail_fast and result.blocking and len(record.results) < len(cases):
                    record.stopped = "--fail-fast ended the run"
                    break
    except KeyboardInterrupt:
        pass
    finally:
        if memory and (changed := memory.settle()):
            _print_changes(console, "no result is kept; changed during this run", changed)
        record.seconds = time.perf_counter() - start
        places = {case.id: place for place, case in enumerate(every)}
        record.results.sort(key=lambda result: places[result.case.id])
        if order.shard:
            found = tuple(places[result.case.id] for result in record.results)
            record.shard = dataclasses.replace(order.shard, places=found, total=len(every))
        if order.files:
            record.unwritten += write_forms(as_json(record), order.files, earlier)
    return record


def _manifest(order: Request) -> Manifest | None:
    """Returns the manifest of the project that one stands in, and begins to watch; None without ``--cached``.

    Raises:
        ValueError: the project has too many files, or its settings cannot be used.
    """
    if order.memory is Recall.NONE:
        return None
    settings = find_settings(Path.cwd())
    caches = [default_folder(), *filter(None, [settings.resources.get("cache"), order.resources.cache])]
    root = project_of(settings.root or Path.cwd())
    manifest = Manifest.of(root, settings.cache_ignores, [*caches, *order.files.values()])
    watch()
    return manifest


def _print_changes(console: Console, words: str, labels: Sequence[str]) -> None:
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    text = f"memory: {words}: {', '.join(labels[:SHOWN])}{more}"
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def rewrite(order: Request, record: Run) -> None:
    """Writes the report again, once more is known of what failed.

    Args:
        order: what was asked.
        record: of the run.

    Raises:
        ValueError: an earlier report is none any more.
    """
    earlier = [read_report(path) for path in order.since]
    record.unwritten = write_forms(as_json(record), order.files, earlier) if order.files else []


def _remembered(
    order: Request, cases: Sequence[Case], memory: VerdictCache | None
) -> tuple[dict[str, CaseResult], set[str]]:
    """Returns the remembered results, and the ids of those that are compared again nevertheless."""
    if memory is None or order.memory is Recall.FRESH:
        return {}, set()
    known = {case.id: result for case in cases if (result := memory.recall(case))}
    return known, memory.sample(list(known.values())) if order.memory is Recall.VERIFY else set()


def _results(
    order: Request, cases: Sequence[Case], progress: Progress, known: tuple[str, ...]
) -> Iterator[CaseResult]:
    """Yields results; ``known`` are folders whose files a manifest has, empty without one."""
    shared = order.backend not in PLATFORMS  # an accelerator belongs to one process
    most = order.resources.workers if shared and len(cases) >= WORTH_WORKERS else 1
    if order.debug:
        most = 1
    workers = order.workers or (order.resources.workers if order.ray is not None else most)
    plan = Plan(
        find="parity.cases.settings:find_cases",
        arguments=(order.pairs, order.settings, str(Path.cwd()), order.devices, order.select),
        backend=order.backend,
        channels=order.channels,
        paranoid=order.paranoid or order.processes > 1,  # who asks for processes wants to see them run
        required=order.required,
        resources=dataclasses.replace(order.resources, workers=workers),
        watched=known,
    )
    if order.ray is not None:
        return run_on_ray(cases, plan, order.ray, progress.started)
    if order.processes > 1:
        return run_in_processes(cases, plan, order.processes, progress.started)
    if workers == 1:
        compiler = order.resources.compiler()

        def examine(error: BaseException) -> None:
            if order.debug:
                with progress.paused():
                    order.debug(error)

        bench = Session(paranoid=order.paranoid, required=order.required, compiler=compiler, examine=examine)
        found = run_each(cases, bench, progress.started, order.channels)
        return (dataclasses.replace(result, read=opened(known)) for result in found) if known else found
    return run_in_workers(cases, plan, progress.started)


def summarise_cases(bench: Session, cases: Sequence[Case], console: Console) -> list[Summary]:
    """Returns the structure of each case, one after the other; both sides of a case compile at once.

    When interrupted it returns those that it has.

    Args:
        bench: compiles, proved or not.
        cases: on their backend.
        console: where to show progress.
    """
    summaries = []
    with contextlib.suppress(KeyboardInterrupt):
        for number, case in enumerate(cases, 1):
            console.print(f"[{number}/{len(cases)}] {case.id}", soft_wrap=True, markup=False, highlight=False)
            summaries.append(summarise_case(Evidence.of(case, bench)))
    return summaries
