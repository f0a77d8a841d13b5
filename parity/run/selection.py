"""Selection of the cases of a request, placed on its backend."""

from parity.builds.meshes import MeshSpec
from parity.cases.case import Case, select
from parity.cases.settings import collect
from parity.compare.backends.backend import Backend
from parity.compare.backends.environment import PLATFORMS
from parity.compare.placement import place, refuse_unless_some_fit
from parity.compare.session import Session
from parity.run.request import Request
from parity.run.run import CaseRunner

__all__ = ["collect_cases", "is_elsewhere", "open_cases", "select_cases"]


def select_cases(request: Request, backend: Backend) -> list[Case]:
    """Returns the cases of a request, on their backend.

    Args:
        request: selects the cases.
        backend: backend of the request, see `Request.find_backend`.

    Raises:
        ValueError: settings, selectors, backend or meshes cannot be used.
    """
    if not is_elsewhere(request):
        backend.fit(MeshSpec())  # reports missing parts before anything is imported or built
    if request.full_size and not backend.topology:
        raise ValueError(
            f"--full-size: got backend {request.backend}, expected a slice such as aot:v5p:2x2x1; "
            "the published sizes fit no laptop"
        )
    cases = select(collect_cases(request, backend), request.select)
    if is_elsewhere(request):
        return [case.with_placement(backend=request.backend) for case in cases]
    cases = place(cases, backend)
    refuse_unless_some_fit(cases)
    return cases


def open_cases(request: Request) -> tuple[list[Case], Session]:
    """Returns the cases of a request and a session for them, for a command that runs no channel itself.

    Args:
        request: the cases, and the options of the session.

    Raises:
        ValueError: see `select_cases`.
    """
    backend = request.find_backend()
    cases = select_cases(request, backend)
    cases = request.shard.take(cases) if request.shard else cases
    return cases, CaseRunner(request, backend).session


def collect_cases(request: Request, backend: Backend) -> list[Case]:
    """Returns the cases as the pairs define them; a worker process finds them in this way, too."""
    devices = backend.topology.devices if request.full_size and backend.topology else None
    return collect(
        request.pairs, dict(request.settings), request.start, devices=devices, select=request.select
    )[1]


def is_elsewhere(request: Request) -> bool:
    """Returns True if the devices are those of other machines, so that meshes are fitted there."""
    return request.ray is not None and request.backend in PLATFORMS
