"""Random programs, a hundred results of one module: each in two forms, some with a condition missed by one."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
from campaigns.prover.execute import EXTREMES, same_numbers, wild_inputs
from campaigns.prover.modules import run_module
from measure import LEVELS, STEPS, lower  # pyright: ignore[reportMissingImports]

from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo.reader import read_program
from parity.prove.proof import NO_UNPAIRED, _Attempt
from parity.prove.rules import EXACT

LONGEST = 3
MISSES, SLOPES = 0.3, 0.4
"""Shares of programs with a near miss in them, and of gradients."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Outcomes of random programs.

    Args:
        programs: how many.
        proved: how many rules prove.
        run: how many of these are not one program operation by operation; these are run.
        missed: how many have a near miss in them.
        proved_missed: how many of these rules prove nevertheless, such as if the miss changes nothing.
        wrong: numbers, data and levels of proved programs that gave different bits.
    """

    programs: int
    proved: int
    run: int
    missed: int
    proved_missed: int
    wrong: tuple[str, ...]


def _plan(rng):
    steps = [rng.choice(STEPS) for _ in range(rng.randint(1, LONGEST))]
    miss = rng.randrange(len(steps)) if rng.random() < MISSES else -1
    if miss >= 0 and steps[miss].miss is None:
        miss = -1
    sides = [[(rng.random() < 0.5, rng.randrange(3)) for _ in steps] for _ in range(2)]
    keeps = [rng.randrange(3) for _ in steps]
    return steps, miss, sides, keeps, rng.random() < SLOPES


def _chain(plan, side):
    steps, miss, sides, keeps, slope = plan

    def run(x, y, v, t, k):
        first, second = x, y
        for place, (step, (choice, _), keep) in enumerate(zip(steps, sides[side], keeps, strict=True)):
            spelling = step.miss if side and place == miss else (step.one, step.other)[choice]
            made = spelling(first, second, v, t, k)
            first, second = made, (first, second, made)[keep]
        return first

    if not slope:
        return run
    return lambda x, y, v, t, k: jax.grad(lambda x: jnp.sum(jnp.tanh(run(x, y, v, t, k))))(x)


def examine(seed, programs=200):
    """Returns the outcomes of a batch; products and sums have to be compiled as two operations.

    Args:
        seed: determines everything.
        programs: how many.
    """
    rng = random.Random(seed)
    plans = [_plan(rng) for _ in range(programs)]
    read = [read_program(side) for side in _lowered(plans)]
    results = [(k, k) for k in range(programs)]
    strict, ruled = (
        _Attempt((read[0], read[1]), [(k, k) for k in range(5)], results, NO_UNPAIRED, rules=rules)
        for rules in (None, EXACT)
    )
    proved = sorted(set(range(programs)) - set(ruled.unequal))
    missed = {k for k, plan in enumerate(plans) if plan[1] >= 0}
    run = [k for k in proved if k in strict.unequal]  # the others are one program
    return Batch(
        programs=programs,
        proved=len(proved),
        run=len(run),
        missed=len(missed),
        proved_missed=len(missed & set(proved)),
        wrong=tuple(_wrong([plans[k] for k in run], seed)) if run else (),
    )


def _lowered(plans):
    return [
        lower(lambda *given, side=side: tuple(_chain(plan, side)(*given) for plan in plans))
        for side in (0, 1)
    ]


def _wrong(plans, seed):
    """Yields the seed, steps, data and level at which two forms give different bits."""
    modules = [stablehlo_module(each) for each in _lowered(plans)]
    fed = [wild_inputs(modules[0], kind, seed) for kind in EXTREMES]
    for inputs in fed:
        inputs[4] = inputs[4] % 16
    for level in LEVELS:
        runs = [run_module(module, fed, level) for module in modules]
        for kind, left, right in zip(EXTREMES, *runs, strict=True):
            for plan, a, b in zip(plans, left, right, strict=True):
                if not same_numbers([np.asarray(a)], [np.asarray(b)]):
                    names = ", ".join(step.name for step in plan[0])
                    yield f"seed {seed}, {names}: {kind} data at level {level}"
