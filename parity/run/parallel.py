"""Parallel cases, each in a worker process: a crash or a hang of a side is the result of its case."""

import collections
import functools
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from parity.cases.case import Case
from parity.compare.backends.backend import Backend
from parity.compare.backends.workers import POLL, RemoteError, Worker, WorkerError
from parity.compare.placement import place
from parity.run.manifest import watch
from parity.run.request import Request
from parity.run.run import GC_THRESHOLD, CaseResult, CaseRunner, Outcome, error_result

__all__ = ["CASE_SECONDS", "poll_case", "run_in_workers", "serve"]

CASE_SECONDS = 3_600.0
"""Wall time after which a case is ended; a compile in it has a separate, shorter limit."""
PLACED = ("mesh", "candidate_mesh", "placement")
"""Fields of a case that describe its devices, which a driver of other machines does not know."""


@functools.cache
def _prepared(
    request: Request, on_phase: Callable[[str], None]
) -> tuple[Backend, dict[str, Case], CaseRunner]:
    """Returns the objects that cases of a request share in this process: backend, cases by id, and their runner."""
    if request.watched:
        watch()
    backend = request.find_backend()
    cases = {case.id: case for case in request.collect_cases(backend)}
    return backend, cases, CaseRunner(request, backend, on_phase=on_phase)


def serve(request: Request, id: str, notify: Callable[[str], None]) -> tuple[dict[str, Any], Outcome]:
    """Runs one case in this process, a worker, which keeps builds and sides for the next.

    Places only this case: another one may not fit the devices of this process.

    Args:
        request: how cases are selected, and how they run.
        id: id of the case.
        notify: called with each phase that begins.

    Returns:
        The fields of the case that describe its devices, and the outcome.
    """
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])  # also between cases: a worker has no other task
    backend, cases, runner = _prepared(request, notify)
    (case,) = place([cases[id]], backend)
    result = runner.run(case)
    return {name: getattr(result.case, name) for name in PLACED}, Outcome.of(result)


def poll_case(worker: Worker) -> Outcome | None:
    """Returns the outcome of the case that a worker runs with `serve`; None while it runs.

    Raises:
        RemoteError: the function raised.
        WorkerError: the process died, or exceeded `CASE_SECONDS`.
    """
    ended, value = worker.poll(0)
    if not ended and worker.seconds > CASE_SECONDS:
        raise WorkerError(f"exceeded {CASE_SECONDS:g} s")
    return value[1] if ended else None


class _WorkerSlot:
    """A worker and its cases, which stay together because they share builds."""

    def __init__(self):
        self.worker = Worker()
        self.todo: collections.deque[Case] = collections.deque()
        self.case: Case | None = None

    def begin(self, request: Request) -> Case:
        """Starts the next case."""
        self.case = self.todo.popleft()
        self.worker.begin("parity.run.parallel:serve", (request, self.case.id))
        return self.case

    def result(self) -> CaseResult | None:
        """Returns the result of the case; None while it runs."""
        assert self.case is not None
        try:
            outcome = poll_case(self.worker)
            return outcome and outcome.on(self.case)
        except (WorkerError, RemoteError) as error:
            phase = self.worker.phase or "building the two sides"
            self.worker.kill()
            self.worker = Worker()
            return error_result(self.case, phase, error)


def run_in_workers(
    cases: Sequence[Case], request: Request, progress: Callable[[Case], None] = lambda case: None
) -> Iterator[CaseResult]:
    """Yields the result of each case as it ends, which may differ from the order of the cases.

    Args:
        cases: the cases to run.
        request: how a worker finds and runs them; its resources are shared between the workers.
        progress: called with each case before it starts.
    """
    groups = collections.deque(
        list(group) for _, group in itertools.groupby(cases, lambda case: case.id.split("/")[0])
    )
    size = min(request.resources.workers, len(groups))
    shared = request.share(size)
    slots = [_WorkerSlot() for _ in range(size)]
    try:
        while True:
            for slot in slots:
                if slot.case is None and (slot.todo or groups):
                    slot.todo = slot.todo or collections.deque(groups.popleft())
                    progress(slot.begin(shared))
            busy = [slot for slot in slots if slot.case is not None]
            if not busy:
                return
            wait([slot.worker.channel for slot in busy], POLL)
            for slot in busy:
                if (result := slot.result()) is not None:
                    slot.case = None
                    yield result
    finally:
        for slot in slots:
            slot.worker.kill()
