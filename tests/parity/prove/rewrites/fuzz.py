"""Random programs in two forms: chains of steps, each side choosing among the forms of each step."""

import functools
import random

from measure import STEPS, compare, differ, gradient  # pyright: ignore[reportMissingImports]

CHAINS, LONGEST = 6, 4


def programs(rng, chains=CHAINS, steps=STEPS):
    """Returns two forms of one random program, and the names of its steps.

    Args:
        rng: determines everything.
        chains: how many results it has.
        steps: to choose from.
    """
    plans = [
        [
            (rng.choice(steps), rng.random() < 0.5, rng.random() < 0.5, rng.randrange(3))
            for _ in range(rng.randint(1, LONGEST))
        ]
        for _ in range(chains)
    ]
    names = tuple(sorted({step.name for plan in plans for step, *_ in plan}))
    return _run(plans, 0), _run(plans, 1), names


def _run(plans, side):
    def run(x, y, v, t, k):
        results = []
        for plan in plans:
            first, second = x, y
            for step, *choices, keep in plan:
                spelling = (step.one, step.other)[choices[side]]
                made = spelling(first, second, v, t, k)
                first, second = made, (first, second, made)[keep]
            results.append(first)
        return results

    return run


def summed(run):
    def loss(x, y, v, t, k):
        return sum(each for each in run(x, y, v, t, k))

    return loss


@functools.cache
def proved_steps():
    """Returns the steps whose two forms are proved: a program with any other step is not."""
    return tuple(step for step in STEPS if compare(step.one, step.other)[2].proved)


def examine(seed):
    """Returns the proof of a random pair, the names of its steps, and the differences of its numbers if proved."""
    rng = random.Random(seed)
    one, other, names = programs(rng, steps=proved_steps())
    if rng.random() < 0.5:
        one, other = gradient(summed(one)), gradient(summed(other))
    left, right, proof = compare(one, other)
    return proof, names, differ(left, right, seed) if proof.proved else []
