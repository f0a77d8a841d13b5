"""Cases in worker processes: several cases at once, or one case in several processes under `jax.distributed`.

A crash or a hang of a side is the result of its case. Processes that share a case each compare their own shards; their
verdicts are merged.
"""

import collections
import dataclasses
import functools
import gc
import itertools
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import NamedTuple

from parity.cases.case import Case
from parity.compare.backends.backend import Backend
from parity.compare.backends.environment import COUNT_FLAG, DEVICES
from parity.compare.backends.workers import POLL, RemoteError, Worker, WorkerError
from parity.compare.placement import place
from parity.run.explain import SEVERITY
from parity.run.manifest import watch
from parity.run.record import CaseResult
from parity.run.request import Request
from parity.run.run import GC_THRESHOLD, case_runner, error_result, skipped_result
from parity.verdicts import ChannelResult, Verdict

CASE_SECONDS = 3_600.0
"""Wall time after which a case is ended; a compile in it has a separate, shorter limit."""
PATIENCE = 60.0
"""Seconds that a process may stay in a case after another has ended it: it waits for a partner that left."""
JOINING = 60
BUILDING = "building the two sides"
"""The phase of a case that has not named one."""


class Rank(NamedTuple):
    """One of the processes that run a case together: its number, how many there are, where process 0 coordinates."""

    number: int
    of: int
    port: int


@functools.cache
def _join(rank: Rank) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{rank.port}", rank.of, rank.number, initialization_timeout=JOINING)


@functools.cache
def _prepared(
    request: Request, on_phase: Callable[[str], None]
) -> tuple[Backend, dict[str, Case], Callable[[Case], CaseResult]]:
    """Returns what cases of a request share in this process: the backend, cases by id, the function that runs them."""
    if request.watched:
        watch()
    backend = request.find_backend()
    cases = {case.id: case for case in request.collect_cases(backend)}
    return backend, cases, case_runner(request, backend, on_phase=on_phase)


def serve(
    request: Request, id: str, rank: Rank | None = None, *, notify: Callable[[str], None]
) -> CaseResult:
    """Runs one case in this process, a worker, which keeps builds and sides for the next.

    Places only this case: another one may not fit the devices of this process.
    """
    if rank:
        notify("joining the other processes")
        _join(rank)
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])  # also between cases: a worker has no other task
    backend, cases, run = _prepared(request, notify)
    (case,) = place([cases[id]], backend)
    return run(case)


class SpreadError(ValueError):
    """A case cannot be split evenly over the processes."""


def spread(case: Case, processes: int) -> int:
    """Returns the number of devices of all processes for a case; 0 if any will do. SpreadError if they do not fit."""
    sizes = sorted({mesh.size for mesh in case.meshes if mesh.axes})
    if len(sizes) > 1:
        raise SpreadError(
            f"--processes {processes}: meshes of {sizes[0]} and {sizes[1]} devices, expected one size"
        )
    if sizes and sizes[0] % processes:
        raise SpreadError(f"--processes {processes}: {sizes[0]} devices, expected a multiple of {processes}")
    return sizes[0] if sizes else 0


class _Crew:
    """Workers at one case after the other: a single one, or several that run each case together."""

    def __init__(self, request: Request):
        self._request, self._size, self._devices = request, request.processes, 0
        self.workers: list[Worker] = []
        self._ranks: list[Rank | None] = [None]

    def run_each(
        self, groups: collections.deque[list[Case]], progress: Callable[[Case], None]
    ) -> Iterator[CaseResult | None]:
        """Yields the results of the cases of groups, taken from their left, and None while a case runs."""
        while groups:
            for case in groups.popleft():
                progress(case)
                yield from self._run(case)

    def _run(self, case: Case) -> Iterator[CaseResult | None]:
        """Yields None while the case runs, then its result, merged from all workers.

        It is an error, after ending all workers, if one of them dies, takes too long, or waits in vain for another.
        """
        results: dict[int, CaseResult] = {}
        first, where = math.inf, BUILDING
        try:
            self._start(spread(case, self._size) if self._size > 1 else 0)
            for worker, rank in zip(self.workers, self._ranks, strict=True):
                worker.begin("parity.run.parallel:serve", (self._request, case.id, rank))
            while len(results) < self._size:
                yield None
                for number, worker in enumerate(self.workers):
                    if number in results:
                        continue
                    where = f"process {number}, " if self._size > 1 else ""
                    where += worker.phase or BUILDING
                    ended, value = worker.poll(0)
                    waited = time.monotonic() - first
                    if ended:
                        results[number] = value
                        first = min(first, time.monotonic())
                    elif worker.seconds > CASE_SECONDS:
                        raise WorkerError(f"exceeded {CASE_SECONDS:g} s")
                    elif waited > PATIENCE:
                        raise WorkerError(f"waits for a process that ended the case {waited:.0f} s ago")
            yield merged([results[number] for number in range(self._size)])
        except SpreadError as why:
            yield skipped_result(case, str(why))
        except (WorkerError, RemoteError) as error:
            self.kill()
            yield error_result(case, where, error)

    def _start(self, devices: int) -> None:
        """Starts the workers, unless there are some with these devices; any will do if that is 0."""
        if devices not in (0, self._devices):
            self.kill()
        if self.workers:
            return
        self._devices, environment = devices or DEVICES, {}
        if self._size > 1:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            self._ranks = [Rank(number, self._size, port) for number in range(self._size)]
            flags = re.sub(rf"{COUNT_FLAG}=\d+", "", os.environ.get("XLA_FLAGS", ""))
            flags = f"{flags} {COUNT_FLAG}={self._devices // self._size}".strip()
            environment = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        self.workers = [Worker(environment) for _ in self._ranks]

    def kill(self) -> None:
        """Ends all workers."""
        while self.workers:
            self.workers.pop().kill()


def run_in_workers(
    cases: Sequence[Case], request: Request, progress: Callable[[Case], None] = lambda case: None
) -> Iterator[CaseResult]:
    """Yields the result of each case as it ends; one that cannot be spread over the processes is skipped."""
    groups = collections.deque(  # cases that share builds stay in one crew
        list(group) for _, group in itertools.groupby(cases, lambda case: case.id.split("/")[0])
    )
    count = min(request.resources.workers, len(groups)) if request.processes == 1 else 1
    shared = request.share(count * request.processes)
    crews = [_Crew(shared) for _ in range(count)]
    try:
        for results in itertools.zip_longest(*(crew.run_each(groups, progress) for crew in crews)):
            yield from filter(None, results)
            if not any(results):
                wait([worker.channel for crew in crews for worker in crew.workers], POLL)
    finally:
        for crew in crews:
            crew.kill()


def merged(results: Sequence[CaseResult]) -> CaseResult:
    """Returns one result: in each channel the worst verdict, and every finding with the process that has it."""
    names = dict.fromkeys(name for result in results for name in result.channels)
    return results[0].with_channels(
        {name: _channel([one.channels.get(name) for one in results]) for name in names}
    )


def _channel(results: Sequence[ChannelResult | None]) -> ChannelResult:
    known = [(number, result) for number, result in enumerate(results) if result is not None]
    worst, result = max(known, key=lambda one: (_badness(one[1].verdict), -one[0]))
    if all(other == result for _, other in known):
        return result
    findings = tuple(
        dataclasses.replace(finding, where=f"process {number}: {finding.where}")
        for number, other in sorted(known, key=lambda one: one[0] != worst)
        for finding in other.findings
    )
    differ = {other.verdict for _, other in known} != {result.verdict}
    detail = f"process {worst}: {result.detail}" if differ else result.detail
    return dataclasses.replace(result, findings=findings, detail=detail)


def _badness(verdict: Verdict) -> int:
    """Returns the severity of a verdict: later in `Verdict` is worse, blocking verdicts are worst, skipped is best."""
    if verdict in SEVERITY:
        return 100 - SEVERITY.index(verdict)
    return -1 if verdict is Verdict.SKIPPED else list(Verdict).index(verdict)
