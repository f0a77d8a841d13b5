"""What a side costs a process of its own: the first trace of all, and the most host memory it ever held."""

import contextlib
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import jax

from parity.builds.build import SEED
from parity.builds.tree import to_host
from parity.cases.case import made
from parity.cases.settings import find_cases
from parity.compare.backends.registry import find
from parity.compare.backends.workers import RemoteError, Worker, WorkerError
from parity.compare.placement import place
from parity.compare.session import Session
from parity.compare.side import built
from parity.compare.timing.phases import first_step, source

__all__ = ["FRESH", "Found", "in_a_process", "serve"]

FRESH = {"trace": "cold trace", "lower": "cold lower", "first step": "cold first step"}
"""What is measured in the process, and what it is called."""
PEAK, OWN = "peak host memory", "peak over imports"
WAIT = 0.2

Found = tuple[tuple[str, ...], tuple[tuple[str, str], ...], str, int | None]
"""How a process finds the cases: the arguments of `parity.cases.settings.find_cases`, but for the selector."""


def peak_bytes() -> int:
    """Returns the most memory that this process has held.

    What ``getrusage`` says of a process may be of the one that started it, so Linux is asked for this one's own.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    kib = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kib


def serve(found: Found, id: str, backend: str, which: int, tell: Callable[[str], None]) -> dict[str, float]:
    """Takes one side from its source to a step in this process, which has done nothing before.

    Args:
        found: how to find the case.
        id: of the case.
        backend: where to place it.
        which: 0 for the reference, 1 for the candidate.
        tell: told of each phase.
    """
    target = find(backend)
    (case,) = place([case for case in find_cases(*found, (id,)) if case.id == id], target)
    bench = Session(tell=tell, backend=target)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1))  # devices and compiler are up, as on every side
    before = peak_bytes()
    name, make = (("reference", case.reference), ("candidate", case.candidate))[which]
    mesh = case.meshes[which]
    build = built(name, made, make, target.mesh, mesh)
    side = bench.side(build, case, mesh)
    state = to_host(jax.jit(build.create)(jax.random.key(SEED)))
    seconds = {**source(side)(), **first_step(side, state)()}
    after = peak_bytes()
    times = {name: seconds[of] for of, name in FRESH.items()}
    return {**times, PEAK: float(after), OWN: float(after - before)}


def in_a_process(found: Found, id: str, backend: str, which: int) -> Callable[[], Mapping[str, float]]:
    """Returns what starts a process for `serve` and returns its answer.

    Args:
        found, id, backend, which: as `serve` takes them.

    The call raises `RuntimeError` where the process failed; says why.
    """

    def once() -> Mapping[str, float]:
        worker = Worker()
        try:
            worker.begin("parity.compare.timing.fresh:serve", (found, id, backend, which))
            while True:
                ended, result = worker.poll(WAIT)
                if ended:
                    return result
        except (RemoteError, WorkerError) as error:
            raise RuntimeError(
                f"in a process of its own, {worker.phase or 'at the start'}: {error}"
            ) from error
        finally:
            worker.kill()

    return once
