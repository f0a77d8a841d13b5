"""Processor time of one call of a compiled step: the step adds one to each leaf, cut to one element."""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from parity.builds.build import Build, Program
from parity.builds.calling import Step, Way
from parity.ir.jax_internals import key_implementation

__all__ = ["DISPATCH", "calls"]

DISPATCH = "dispatch"
"""Name for the recommended way; any other is ``dispatch, NAME``."""
BRIEF = 0.02
"""Least number of seconds for the calls of one round."""
MOST_CALLS = 1_000


def _small(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0, impl=key_implementation(leaf.dtype))
    return jnp.zeros((), leaf.dtype)


def _more(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return ~leaf if leaf.dtype == bool else leaf + jnp.ones((), leaf.dtype)


def _step(changes: bool) -> Step:
    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        return jax.tree.map(_more, state) if changes else None, jax.tree.map(_more, batch)

    return step


def _calls(build: Build, way: Way, changes: bool) -> Callable[[], float]:
    """Returns a function that calls the step repeatedly and returns the seconds of one call."""
    batch = {name: _small(leaf) for name, leaf in build.abstract_inputs.items()}
    loop = way({path: _small(leaf) for path, leaf in build.abstract.items()}, batch, _step(changes))

    def seconds(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            metrics = loop.call()
        jax.block_until_ready((metrics, jax.tree.leaves(loop.state())))
        return (time.process_time() - start) / count

    seconds(1)
    one = seconds(5)
    return functools.partial(seconds, min(MOST_CALLS, max(5, round(BRIEF / one))))


def calls(
    builds: tuple[Build, Build], program: Program
) -> tuple[Callable[[], Mapping[str, float]], Callable[[], Mapping[str, float]]]:
    """Returns functions that measure calls of both sides: the candidate's in every way, the reference's in its first.

    Args:
        builds: reference and candidate, both with `Build.ways`.
        program: of both; if it donates its state's buffers, the step returns the state as in a training loop, else it
            only reads the state.
    """
    reference, candidate = builds
    changes = program.donate
    yardstick = _calls(reference, next(iter(reference.ways.values())), changes)
    ways = {
        f"{DISPATCH}, {name}" if at else DISPATCH: _calls(candidate, way, changes)
        for at, (name, way) in enumerate(candidate.ways.items())
    }

    def left() -> Mapping[str, float]:
        return dict.fromkeys(ways, yardstick())

    def right() -> Mapping[str, float]:
        return {name: once() for name, once in ways.items()}

    return left, right
