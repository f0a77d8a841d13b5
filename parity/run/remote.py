"""Cases as Ray tasks: if a worker is lost, alone or with its machine, its case runs again."""

from collections.abc import Callable, Iterator, Sequence

from parity.cases.case import Case
from parity.compare.backends.ray_cluster import declared, machines, outcome, session, submit, wait_for_any
from parity.compare.backends.workers import RemoteError, WorkerError
from parity.run.parallel import CASE_SECONDS
from parity.run.record import CaseResult
from parity.run.request import Request
from parity.run.run import error_result


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
        waiting = {}
        for case, need in zip(cases, needs, strict=True):
            progress(case)
            call = submit(request.backend, "parity.run.parallel:serve", (shared, case.id), need, CASE_SECONDS)
            waiting[call] = case
        while waiting:
            for call in wait_for_any([*waiting]):
                case = waiting.pop(call)
                try:
                    yield outcome(call)
                except (RemoteError, WorkerError) as error:
                    yield error_result(case, "Ray worker", error)
