"""Cost of a pair that is wrong in every leaf over the same pair without a mistake, in processor time.

``python tests/campaigns harness.wrong --program grad --leaves 1000`` prints the seconds of both and their ratio. Each
runs in a new process.
"""

import argparse
import functools
import subprocess
import sys
import time
from pathlib import Path

from parity.compare.backends.environment import prepare

prepare()

import numpy as np
from flax import linen, nnx

from parity.cases.case import Case
from parity.cases.twins import twins
from parity.compare.backends.registry import find
from parity.compare.placement import place
from parity.compare.session import Session
from parity.run.run import run_case

WIDTH, ROWS = 4, 8
FACTORS = {"right": 1.0, "wrong": 1.05}
"""Factors of each activation of the candidate; for ``init`` its initial kernels vary more."""


def case(program: str, leaves: int, factor: float) -> Case:
    """Returns a stack of dense layers, of which the candidate multiplies each activation by a factor.

    Args:
        program: ``forward``, ``grad``, or ``init`` for gradients with a mistake in the initial state only.
        leaves: number of parameters, two for each layer.
        factor: 1 for no mistake.
    """
    variance = 4.0 if program == "init" and factor != 1 else 1.0
    kernels = nnx.initializers.variance_scaling(variance, "fan_in", "truncated_normal")
    dense = functools.partial(nnx.Linear, WIDTH, WIDTH, kernel_init=kernels)

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            for at in range(leaves // 2):
                x = linen.tanh(linen.Dense(WIDTH, name=f"layers_{at}")(x))
            return x

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([dense(rngs=rngs) for _ in range(leaves // 2)])

        def __call__(self, x):
            for layer in self.layers:
                x = nnx.tanh(layer(x))
                x = x if factor == 1 or program == "init" else x * factor
            return x

    pair = twins(
        "wide",
        linen=Linen,
        nnx=Nnx,
        inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype(np.float32)},
        loss=lambda outputs, batch: (outputs**2).mean(),
        programs=("grad" if program == "init" else program,),
    )
    return pair.cases({})[0]


def seconds(program: str, leaves: int, kind: str) -> float:
    """Returns the processor seconds of a comparison in this process; asserts its verdict."""
    backend = find("cpu")
    (one,) = place([case(program, leaves, FACTORS[kind])], backend)
    start = time.process_time()
    found = run_case(one, Session(backend=backend))
    assert found.verdict == ("passed" if kind == "right" else "failed"), found
    return time.process_time() - start


def main() -> None:
    """Prints the seconds of one kind, or of both with their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=("forward", "grad", "init"), default="grad")
    parser.add_argument("--leaves", type=int, default=1_000)
    parser.add_argument("--kind", choices=tuple(FACTORS), help="only this one, in this process")
    given = parser.parse_args()
    if given.kind:
        print(f"{seconds(given.program, given.leaves, given.kind):.1f}")
        return
    command = [sys.executable, str(Path(__file__).parents[1]), "harness.wrong", *sys.argv[1:], "--kind"]
    right, wrong = (float(subprocess.check_output([*command, kind], text=True)) for kind in FACTORS)
    print(f"right {right:.1f} s, wrong {wrong:.1f} s, {wrong / right:.2f} x")


if __name__ == "__main__":
    main()
