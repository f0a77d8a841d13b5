"""Interleaved timing: both sides alternately, so that background load affects both; each phase from source to step.

Work of this machine's processor is measured in processor time, which other jobs do not change. So are steps on
simulated devices; steps on other devices are measured in wall time.
"""

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from parity.builds.build import SEED, Group
from parity.compare.side import Side

ROUNDS = 7
LOW, HIGH = 0.25, 0.75
"""A candidate is slower if it is slower in three rounds of four."""


@dataclasses.dataclass(frozen=True)
class Paired:
    """A quantity of both sides, one pair a round.

    Args:
        values: ``[rounds, 2]``, reference and candidate.
    """

    values: np.ndarray

    @property
    def medians(self) -> tuple[float, float]:
        """The median of each side."""
        left, right = np.median(self.values, axis=0)
        return float(left), float(right)

    @property
    def ratios(self) -> np.ndarray:
        """Candidate over reference, for each round; zero over zero is one."""
        left, right = self.values[:, 0], self.values[:, 1]
        bare = np.where(right == 0, 1.0, np.inf)
        return np.divide(right, left, out=bare, where=left != 0)

    @property
    def low(self) -> float:
        """The lower quartile: three rounds of four exceed it."""
        return float(np.quantile(self.ratios, LOW))

    @property
    def high(self) -> float:
        """The upper quartile: one round of four exceeds it."""
        return float(np.quantile(self.ratios, HIGH))

    @property
    def middle(self) -> float:
        """The median ratio."""
        return float(np.median(self.ratios))


Sides = tuple[Callable[[], Mapping[str, float]], Callable[[], Mapping[str, float]]]


def interleave(sides: Sides, rounds: int = ROUNDS, *, warm: bool = True) -> dict[str, Paired]:
    """Measures both sides alternately; the order changes from round to round.

    Args:
        sides: each does its work once and returns ``{quantity: value}``, both of the same quantities.
        warm: run each side once before, so that one-time loading and allocation do not count.
    """
    if warm:
        for side in sides:
            side()
    found: dict[str, np.ndarray] = {}
    for number in range(rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            for name, value in sides[index]().items():
                found.setdefault(name, np.empty((rounds, 2)))[number, index] = value
    return {name: Paired(values) for name, values in found.items()}


def paired(sides: Sequence[Callable[[], float]], rounds: int = ROUNDS) -> Paired:
    """Measures one quantity of both sides as `interleave` does."""
    one, other = sides
    return interleave((lambda: {"": one()}, lambda: {"": other()}), rounds)[""]


BRIEF = 0.05
"""Least number of seconds for the steps of one round, so that the clock can measure them."""
MOST_STEPS = 200


@contextlib.contextmanager
def no_kept_programs() -> Iterator[None]:
    """Keeps JAX from reading a compiled program that an earlier round, or run, has left on disk."""
    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def compile_seconds(side: Side) -> float:
    """Compiles a side again and returns the seconds."""
    lowered = dataclasses.replace(side).lowered  # traced again: JAX keeps the compiled program
    with no_kept_programs(), side.backend.context(side.mesh):
        start = time.perf_counter()
        side.backend.start(lowered)()
        return time.perf_counter() - start


def initialise(side: Side, state: Mapping[str, np.ndarray] | None = None) -> Mapping[str, float]:
    """Makes an initial state, traced and compiled again, and returns the seconds; ``state`` is not used."""
    gc.collect()
    with no_kept_programs():
        start = time.process_time()
        jax.block_until_ready(jax.jit(lambda key: side.build.create(key))(jax.random.key(SEED)))
        return {"init": time.process_time() - start}


def source(side: Side, state: Mapping[str, np.ndarray] | None = None) -> Mapping[str, float]:
    """Traces and lowers a side again, and returns the seconds of each; ``state`` is not used."""
    fresh = dataclasses.replace(side)
    gc.collect()  # garbage of earlier rounds does not count
    start = time.thread_time()
    _ = fresh.traced
    traced = time.thread_time()
    _ = fresh.lowered
    return {"trace": traced - start, "lower": time.thread_time() - traced}


def first_step(side: Side, state: Mapping[str, np.ndarray]) -> Mapping[str, float]:
    """Returns the seconds of a compile, and of the way from the source to the end of the first step."""
    fresh = dataclasses.replace(side)
    given = fresh.placed(state), fresh.placed_inputs(side.build.inputs(SEED))
    jax.block_until_ready(given)
    gc.collect()
    with no_kept_programs(), fresh.backend.context(fresh.mesh):
        start = time.process_time()
        _ = fresh.lowered
        lowered = time.process_time()
        compiled = fresh.compiled
        after = time.process_time()
        jax.block_until_ready(compiled(*given))
    return {"compile": after - lowered, "first step": time.process_time() - start}


class Steps:
    """A program that runs repeatedly, each time from its last state.

    Args:
        side: compiled now, unless it is already.
        state: where it starts, on the host.
    """

    def __init__(
        self, side: Side, state: Mapping[str, np.ndarray], clock: Callable[[], float] = time.perf_counter
    ):
        self._clock = clock
        self._side, self.state = side, side.placed(state)
        self._batch = side.placed_inputs(side.build.inputs(SEED))
        self.count = 1

    def __call__(self) -> float:
        compiled = self._side.compiled
        with self._side.backend.context(self._side.mesh):
            start = self._clock()
            for _ in range(self.count):
                outputs = compiled(self.state, self._batch)
                self.state = self.state | outputs.get(Group.STATE, {})  # a forward pass returns part of it
            jax.block_until_ready(outputs)
            return self._clock() - start


def steps(
    sides: tuple[Side, Side],
    states: tuple[Mapping[str, np.ndarray], ...],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Steps, Steps]:
    """Returns the steps of both sides, with enough steps a round for the clock."""
    left, right = (Steps(side, state, clock) for side, state in zip(sides, states, strict=True))
    for one in (left, right):
        one()
    left.count = right.count = int(np.clip(np.ceil(BRIEF / max(left(), 1e-9)), 1, MOST_STEPS))
    return left, right
