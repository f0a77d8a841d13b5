"""Cost of the harness: its own share of a run, and the run against a script that compares without it.

``python tests/campaigns harness.overhead [SELECT...] [--script FILE]``
"""

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.compare.timing.rounds import HIGH, LOW, ROUNDS, Paired, interleave
from parity.report.bench import amount

CASES = ("llama2-scan/forward", "llama2-scan/grad", "llama2-unroll/forward", "llama2-unroll/grad")
SCRIPT = Path(__file__).parents[3] / "docs/examples/plain_comparison.py"
"""Compares the same cases without the harness."""
JAX_ITSELF = ("trace", "lower", "compile", "execute")
"""Phases that any script comparing two models needs; the rest is the harness."""
RUNS: Mapping[str, tuple[str, ...]] = {"parity run": (), "parity run --paranoid": ("--paranoid",)}
"""Options of the runs, by name; proved cases are compiled only if ``--paranoid`` is given."""
LAST_LINES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overhead:
    """The measurements of the harness.

    Args:
        own: by run, the share outside trace, lower, compile and execute: lower quartile, median, upper quartile.
        ratios: processor time of whole processes, the run over the script.
    """

    own: Mapping[str, tuple[float, float, float]]
    ratios: Mapping[str, Paired]


def own_share(report: Mapping) -> float:
    """Returns the share of a run's time that is not JAX's."""
    spent = sum(case["seconds"][phase] for case in report["cases"] for phase in JAX_ITSELF)
    return 1 - spent / report["seconds"]


def measure_overhead(
    cases: Sequence[str],
    script: Path,
    rounds: int,
    notify: Callable[[str], None] = lambda words: None,
) -> Overhead:
    """Runs the cases and the script alternately, each in a separate process.

    Raises:
        ValueError: a process ended with an error; the message has its last lines.
    """
    own: dict[str, tuple[float, float, float]] = {}
    ratios: dict[str, Paired] = {}
    environment = dict(os.environ)
    for name, options in RUNS.items():
        notify(name)
        shares: list[float] = []

        def run(options: Sequence[str] = options, shares: list[float] = shares) -> Mapping[str, float]:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.json"
                asked = [
                    "-m",
                    "parity",
                    "run",
                    *cases,
                    *options,
                    "--workers",
                    "1",
                    "--json",
                    str(path),
                ]
                seconds = _timed(asked, environment)
                shares.append(own_share(json.loads(path.read_text())))
            return seconds

        sides = lambda: _timed([str(script)], environment), run
        ratios |= {f"{name} over the script": interleave(sides, rounds, warm=False)["seconds"]}
        low, middle, high = np.quantile(shares, (LOW, 0.5, HIGH))
        own[name] = (float(low), float(middle), float(high))
    return Overhead(own=own, ratios=ratios)


def _timed(arguments: Sequence[str], environment: Mapping[str, str]) -> Mapping[str, float]:
    """Returns the processor seconds of a Python process and its children, to its end."""
    before = _spent()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
    seconds = _spent() - before
    if done.returncode:
        words = " | ".join((done.stderr or done.stdout).strip().splitlines()[-LAST_LINES:])
        raise ValueError(f"python {' '.join(arguments)}: ended with {done.returncode}: {words}")
    return {"seconds": seconds}


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_overhead(found: Overhead) -> None:
    """Prints the harness's own share, and the ratios."""
    for name, (low, middle, high) in found.own.items():
        print(f"own time of {name}: {middle:.0%} ({low:.0%} to {high:.0%})")
    for name, pair in found.ratios.items():
        left, right = (amount(value) for value in pair.medians)
        print(f"{name}: {pair.middle:.2f} x ({pair.low:.2f} to {pair.high:.2f}), {right} over {left}")


def main() -> None:
    """Measures and prints the cost of the harness."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("select", nargs="*", default=CASES)
    parser.add_argument("--script", type=Path, default=SCRIPT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    print_overhead(measure_overhead(asked.select, asked.script, asked.rounds, print))


if __name__ == "__main__":
    main()
