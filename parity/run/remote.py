"""Cases as Ray tasks: if a worker is lost, alone or with its machine, its case runs again."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parity.cases.case import Case
from parity.compare.backends.ray_cluster import RemoteCall, declared, machines, session, wait_for_any
from parity.compare.backends.workers import RemoteError, WorkerError
from parity.run.parallel import CASE_SECONDS
from parity.run.record import CaseResult
from parity.run.request import Request
from parity.run.run import error_result
from parity.verdicts import Finding

WORKER = "Ray worker"
TRIES = 3
"""Number of workers that one case may lose; then the case itself is the likely cause, and becomes an error."""


class _RayCase:
    """A case submitted to Ray; submitted again if its worker dies, up to `TRIES` times."""

    def __init__(
        self, case: Case, request: Request, resources: dict[str, Any], progress: Callable[[Case], None]
    ):
        self.case, self._request, self._resources, self._progress = case, request, resources, progress
        self._lost: list[Finding] = []
        self.call = self._sent()

    def _sent(self) -> RemoteCall:
        arguments = self._request, self.case.id
        return RemoteCall(self._request.backend, "parity.run.parallel:serve", arguments, self._resources)

    def take(self, *, ready: bool) -> CaseResult | None:
        """Returns the result, or None while the case runs or must run again; an error if it takes too long."""
        waited, ended = not self.call.begun, False
        value: Any = None
        try:
            if ready:
                ended, value = self.call.take()
            elif self.call.seconds > CASE_SECONDS:
                self.call.cancel()
                return error_result(self.case, WORKER, WorkerError(f"exceeded {CASE_SECONDS:g} s"))
        except RemoteError as error:
            return error_result(self.case, WORKER, error)
        except WorkerError as error:
            if len(self._lost) + 1 == TRIES:
                last = WorkerError(f"{TRIES} Ray workers, the last {error}")
                return error_result(self.case, WORKER, last)
            text = f"{error}; the case ran again"
            self._lost.append(Finding(where=WORKER, reference="", candidate=text, labels=("", "")))
            self.call = self._sent()
            return None
        if ready and waited:
            self._progress(self.case)
        if not ended:
            return None
        name, first = next(iter(value.channels.items()))
        noted = dataclasses.replace(first, notes=(*self._lost, *first.notes))
        return dataclasses.replace(value, channels={**value.channels, name: noted})


def run_on_ray(
    cases: Sequence[Case], request: Request, progress: Callable[[Case], None] = lambda case: None
) -> Iterator[CaseResult]:
    """Yields the result of each case as it ends, which may differ from the order of the cases.

    Raises:
        ValueError: no cluster is there, or none of its machines has the resources that a case needs.
    """
    if not cases:
        return
    assert request.ray is not None
    workers = min(request.resources.workers, len(cases))
    shared = request.share(workers)
    with session(request.ray, workers):
        has = machines()
        needs = [declared(request.backend, max(mesh.size for mesh in case.meshes), has) for case in cases]
        waiting = [_RayCase(case, shared, need, progress) for case, need in zip(cases, needs, strict=True)]
        while waiting:
            ready = wait_for_any([one.call for one in waiting])
            left = []
            for one in waiting:
                result = one.take(ready=one.call in ready)
                if result is None:
                    left.append(one)
                else:
                    yield result
            waiting = left
