"""One case in several processes under `jax.distributed`: each compares its own shards; the verdicts are merged."""

import dataclasses
import functools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from parity.cases.case import Case
from parity.compare.backends.environment import COUNT_FLAG, DEVICES
from parity.compare.backends.workers import POLL, RemoteError, Worker, WorkerError
from parity.run.explain import SEVERITY
from parity.run.parallel import poll_case, serve
from parity.run.request import Request
from parity.run.run import CaseResult, Outcome, error_result, skipped_result, verdict_of
from parity.verdicts import ChannelResult, Verdict

__all__ = ["merged", "run_in_processes", "spread"]

PATIENCE = 60.0
"""Seconds that a process may stay in a case after another has ended it: it waits for a partner that left."""
JOINING = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes that run a case together.

    Args:
        number: from 0.
        of: number of processes.
        port: where process 0 coordinates.
    """

    number: int
    of: int
    port: int


@functools.cache
def _join(rank: Rank) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{rank.port}", rank.of, rank.number, initialization_timeout=JOINING)


def serve_rank(
    request: Request, id: str, rank: Rank, notify: Callable[[str], None]
) -> tuple[dict[str, Any], Outcome]:
    """Runs one case in this process, a worker, together with the other ranks.

    Args:
        request, id, notify: see `serve`.
        rank: the rank of this process.
    """
    notify("joining the other processes")
    _join(rank)
    return serve(request, id, notify)


class SpreadError(ValueError):
    """A case cannot be split evenly over the processes."""


def spread(case: Case, processes: int) -> int:
    """Returns the total number of devices of the processes for a case; 0 if any number will do.

    Raises:
        SpreadError: a mesh would be in some of the processes only.
    """
    sizes = sorted({mesh.size for mesh in case.meshes if mesh.axes})
    if len(sizes) > 1:
        raise SpreadError(
            f"--processes {processes}: meshes of {sizes[0]} and {sizes[1]} devices, expected one size"
        )
    if sizes and sizes[0] % processes:
        raise SpreadError(f"--processes {processes}: {sizes[0]} devices, expected a multiple of {processes}")
    return sizes[0] if sizes else 0


class _RankGroup:
    """The processes, all at the same case, and the devices that they share evenly."""

    def __init__(self, size: int, devices: int):
        self.devices = devices
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        flags = re.sub(rf"{COUNT_FLAG}=\d+", "", os.environ.get("XLA_FLAGS", ""))
        each = {"XLA_FLAGS": f"{flags} {COUNT_FLAG}={devices // size}".strip(), "JAX_PLATFORMS": "cpu"}
        self.ranks = [Rank(number=number, of=size, port=port) for number in range(size)]
        self.workers = [Worker(each) for _ in self.ranks]

    def run(self, case: Case, request: Request) -> CaseResult:
        """Returns the merged result; an error, after ending all processes, if one of them dies or waits in vain."""
        for rank, worker in zip(self.ranks, self.workers, strict=True):
            worker.begin("parity.run.processes:serve_rank", (request, case.id, rank))
        outcomes: dict[int, Outcome] = {}
        first = 0.0
        while running := [rank.number for rank in self.ranks if rank.number not in outcomes]:
            wait([self.workers[number].channel for number in running], POLL)
            for number in running:
                waited = time.monotonic() - first if first else 0.0
                try:
                    outcome = poll_case(self.workers[number])
                    if outcome is None and waited > PATIENCE:
                        raise WorkerError(f"waits for a process that ended the case {waited:.0f} s ago")
                except (WorkerError, RemoteError) as error:
                    where = f"process {number}, {self.workers[number].phase}"
                    self.kill()
                    return error_result(case, where, error)
                if outcome is not None:
                    outcomes[number] = outcome
                    first = first or time.monotonic()
        return merged(case, [outcomes[rank.number] for rank in self.ranks])

    def kill(self) -> None:
        """Ends all processes."""
        while self.workers:
            self.workers.pop().kill()


def run_in_processes(
    cases: Sequence[Case], request: Request, progress: Callable[[Case], None] = lambda case: None
) -> Iterator[CaseResult]:
    """Yields the result of each case, run by all processes together. A lost process is an error of the case.

    Args:
        cases: the cases to run; one that cannot be spread is skipped with the reason.
        request: the number of processes, and how they find and run the cases.
        progress: called with each case before it starts.
    """
    group = None
    try:
        for case in cases:
            progress(case)
            try:
                devices = spread(case, request.processes)
            except SpreadError as why:
                yield skipped_result(case, str(why))
                continue
            if group and devices not in (0, group.devices):
                group.kill()
            if group is None or not group.workers:
                group = _RankGroup(request.processes, devices or DEVICES)
            yield group.run(case, request)
    finally:
        if group:
            group.kill()


def merged(case: Case, outcomes: Sequence[Outcome]) -> CaseResult:
    """Returns one result: in each channel the worst verdict, and every finding with the process that has it.

    Args:
        case: the case.
        outcomes: outcomes of each process, in order.
    """
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.channels)
    channels = {name: _channel([outcome.channels.get(name) for outcome in outcomes]) for name in names}
    return dataclasses.replace(outcomes[0].on(case), channels=channels, verdict=verdict_of(channels))


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
