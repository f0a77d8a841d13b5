"""Cost of a side in a fresh process: the first trace, and the peak host memory.

``python tests/campaigns harness.fresh CASE`` prints the candidate over the reference.
"""

import argparse
import contextlib
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from parity.compare.backends.environment import prepare

prepare()

import jax

from parity.builds.build import SEED
from parity.builds.tree import to_host
from parity.cases.case import made, select
from parity.cases.settings import collect
from parity.compare.backends.registry import find
from parity.compare.backends.workers import RemoteError, Worker, WorkerError
from parity.compare.placement import place
from parity.compare.session import Session
from parity.compare.side import built
from parity.compare.timing.rounds import first_step, interleave, source
from parity.report.bench import amount

FRESH = {"trace": "cold trace", "lower": "cold lower", "first step": "cold first step"}
"""The quantities measured in the process, and their names."""
PEAK, OWN = "peak host memory", "peak over imports"
WAIT = 0.2


def peak_bytes() -> int:
    """Returns the peak memory of this process.

    On Linux it is read from ``/proc``, because ``getrusage`` may report the value of the parent process.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    kib = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kib


def serve(id: str, which: int, notify: Callable[[str], None]) -> dict[str, float]:
    """Takes one side from its source to a step in this process, which has done nothing before.

    Args:
        id: id of the case.
        which: 0 for the reference, 1 for the candidate.
        notify: called with each phase.
    """
    target = find("cpu")
    (case,) = place(select(collect(select=(id,))[1], (id,)), target)
    bench = Session(notify=notify, backend=target)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1))  # starts devices and compiler, for every side
    before = peak_bytes()
    name, make = (("reference", case.reference), ("candidate", case.candidate))[which]
    mesh = case.meshes[which]
    build = built(name, made, make, target.mesh, mesh)
    side = bench.side(build, case, mesh)
    state = to_host(jax.jit(build.create)(jax.random.key(SEED)))
    seconds = {**source(side), **first_step(side, state)}
    after = peak_bytes()
    times = {name: seconds[of] for of, name in FRESH.items()}
    return {**times, PEAK: float(after), OWN: float(after - before)}


def in_a_process(id: str, which: int) -> Callable[[], Mapping[str, float]]:
    """Returns a function that starts a process for `serve` and returns its result.

    The function raises `RuntimeError` with the reason if the process failed.
    """

    def once() -> Mapping[str, float]:
        worker = Worker()
        try:
            worker.begin("campaigns.harness.fresh:serve", (id, which))
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


def main() -> None:
    """Measures a case, and prints a line for each quantity."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="?", default="llama2-scan/train_step@single")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    sides = in_a_process(asked.case, 0), in_a_process(asked.case, 1)
    for name, pair in interleave(sides, asked.rounds, warm=False).items():
        left, right = (amount(value) for value in pair.medians)
        print(f"{name}: {pair.middle:.2f} x ({pair.low:.2f} to {pair.high:.2f}), {right} over {left}")


if __name__ == "__main__":
    main()
