"""Runs the cases of a request: selects them, reuses cached verdicts, schedules the rest, records the results."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence

from parity.cases.case import Case
from parity.cases.coverage import unvaried_options
from parity.compare.backends.environment import DEVICES, PLATFORMS, describe_environment
from parity.compare.backends.ray_cluster import OWN, check_address
from parity.run.parallel import run_in_workers
from parity.run.record import CaseResult, Report, distinct
from parity.run.remote import run_on_ray
from parity.run.request import CacheMode, Request
from parity.run.run import case_runner, raised_gc_threshold
from parity.run.verdict_cache import VerdictCache, take_manifest
from parity.run.waiving import check_channels

WORTH_WORKERS = 8
"""Number of cases from which worker processes save more time than their start costs."""


class Listener:
    """Receives the events of a run; this base class does nothing."""

    def begins(self, planned: int, changed: Sequence[str]) -> None:
        """Called before any case runs: the number of cases, and changes that prevent the reuse of cached verdicts."""

    def started(self, case: Case) -> None:
        """Called before a case begins."""

    def finished(self, result: CaseResult) -> None:
        """Called when a case has a result."""

    def ended(self, report: Report, changed: Sequence[str]) -> None:
        """Called after the run, also if it was interrupted or failed; changes during it prevent caching."""


class Schedule:
    """The cases of a request, selected and checked; none has run yet. ValueError if a part cannot be used."""

    def __init__(self, request: Request):
        self.backend = request.find_backend()
        check_schedule(request)
        manifest = take_manifest(request)  # before any code of the project is imported
        self.every = request.select_cases(self.backend)
        check_channels(self.every)
        self.cases = request.shard.take(self.every) if request.shard else self.every
        self.cache = VerdictCache(manifest, request.options)
        self.cache.look_up(self.cases, request.cache)
        self.request = dataclasses.replace(request, watched=manifest.folders if manifest else ())
        self._environment = describe_environment()
        if request.processes > 1:
            self._environment["processes"] = request.processes
        if request.settings:
            self._environment["settings"] = dict(request.settings)

    def report(self, results: Iterable[CaseResult], seconds: float, planned: int, why: str = "") -> Report:
        """Returns the record: results in the order of the cases, their waivers, a shard's places among all cases."""
        places, shard = {case.id: place for place, case in enumerate(self.every)}, self.request.shard
        results = sorted(results, key=lambda result: places[result.id])
        found = tuple(places[result.id] for result in results)
        return Report.of(
            results,
            planned,
            why,
            environment=self._environment,
            seconds=round(seconds, 3),
            waivers=distinct(one for place in found for one in self.every[place].accept.waivers),
            unvaried=unvaried_options(self.every),
            shard=shard and dataclasses.replace(shard, places=found, total=len(places)),
        )


def execute(request: Request, listener: Listener | None = None) -> Report:
    """Runs the cases of a request; an interrupted run returns its results so far.

    Results are in the order of the cases. ValueError, before any work, if a part of the request cannot be used.
    """
    listener, schedule = listener or Listener(), Schedule(request)
    cache, results, why = schedule.cache, [], ""
    changed, start = cache.since_last(), time.perf_counter()
    try:
        listener.begins(len(schedule.cases), changed)
        for result in _results(schedule, listener):
            results.append(result)
            listener.finished(result)
            cache.keep(result)
            if request.fail_fast and result.blocking:
                why = "--fail-fast ended the run"
                break
    except KeyboardInterrupt:
        pass
    finally:
        changed = cache.store()
        report = schedule.report(results, time.perf_counter() - start, len(schedule.cases), why)
        listener.ended(report, changed)
    return report


def _results(schedule: Schedule, listener: Listener) -> Iterator[CaseResult]:
    """Yields the cached results, then those of the others as they end: on Ray, in ranks, in workers, or here."""
    reused = {case.id: result for case in schedule.cases if (result := schedule.cache.reused(case))}
    yield from reused.values()
    cases = [case for case in schedule.cases if case.id not in reused]
    if not cases:
        return
    request = schedule.request
    shared = request.backend not in PLATFORMS  # an accelerator belongs to one process
    most = request.resources.workers if shared and len(cases) >= WORTH_WORKERS else 1
    workers = request.workers or (request.resources.workers if request.ray is not None else most)
    request = dataclasses.replace(request, resources=dataclasses.replace(request.resources, workers=workers))
    if request.ray is not None:
        yield from run_on_ray(cases, request, listener.started)
    elif request.processes > 1:  # a request for processes is a request to see them run
        yield from run_in_workers(cases, dataclasses.replace(request, paranoid=True), listener.started)
    elif workers > 1:
        yield from run_in_workers(cases, request, listener.started)
    else:
        run = case_runner(schedule.request, schedule.backend)
        with raised_gc_threshold():  # also between cases
            for case in cases:
                listener.started(case)
                yield run(case)


def check_schedule(request: Request) -> None:
    """Raises ValueError, with the options of the command line, if scheduling options cannot be combined."""
    alone, cached = request.processes > 1, request.cache is not CacheMode.IGNORE
    cluster = request.ray not in (None, OWN)
    accelerator = request.backend in PLATFORMS and not request.is_elsewhere
    conflicts = {
        "--ray: cannot be combined with --processes; leave one out": request.ray and alone,
        f"--workers: the cluster at {request.ray} determines the number of parallel cases; leave it out": (
            cluster and request.workers
        ),
        f"--cached: files that the machines of {request.ray} read cannot be checked here; leave it out": (
            cluster and cached
        ),
        f"--workers {request.workers}: backend {request.backend} belongs to one process; leave it out": (
            accelerator and (request.workers or 1) > 1
        ),
        "--cached: cannot be combined with --processes; leave one out": alone and cached,
        f"--processes: runs one case at a time, on cpu; leave out --backend {request.backend} and --workers": (
            alone and (request.backend != "cpu" or request.workers)
        ),
        f"--processes {request.processes}: choose a divisor of the {DEVICES} simulated devices": (
            DEVICES % request.processes
        ),
    }
    for message, conflict in conflicts.items():
        if conflict:
            raise ValueError(message)
    if request.ray is not None:
        check_address(request.ray)
