"""The channel ``speed``: time to compile and to run a step, candidate over reference, side by side."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.comparison.comparison import SEED, Comparison
from parity.comparison.side import Side
from parity.programs.build import Group
from parity.structure import Budget, budgets_for
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL", "Paired", "paired"]

ROUNDS = 7
BRIEF = 0.05
"""Seconds that the steps of one round take at least, so that the clock can tell."""
MOST_STEPS = 200
LOW = 0.25
"""A candidate is slower where three rounds of four say so: a busy machine delays now one side, now the other."""
SIDES = ("reference", "candidate")


@dataclasses.dataclass(frozen=True)
class Paired:
    """Times of both sides, one pair a round.

    Args:
        seconds: ``[rounds, 2]``, reference and candidate.
    """

    seconds: np.ndarray

    @property
    def ratios(self) -> np.ndarray:
        """Candidate over reference, round by round."""
        return self.seconds[:, 1] / self.seconds[:, 0]

    @property
    def low(self) -> float:
        """What three rounds of four exceed."""
        return float(np.quantile(self.ratios, LOW))

    @property
    def middle(self) -> float:
        """The median ratio."""
        return float(np.median(self.ratios))


def paired(sides: tuple[Callable[[], float], Callable[[], float]], rounds: int = ROUNDS) -> Paired:
    """Times both sides in turn, the first of a round being the second of the next.

    Args:
        sides: each does its work once and returns seconds.
        rounds: how often.
    """
    for side in sides:
        side()  # what is loaded or allocated once is nobody's
    found = np.empty((rounds, 2))
    for number in range(rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            found[number, index] = sides[index]()
    return Paired(found)


def _compile(side: Side) -> Callable[[], float]:
    def once() -> float:
        lowered = dataclasses.replace(side).lowered  # traced anew: JAX keeps what it compiled of a program
        with _no_kept_programs(), side.backend.context(side.mesh):
            start = time.perf_counter()
            side.backend.start(lowered)()
            return time.perf_counter() - start

    return once


@contextlib.contextmanager
def _no_kept_programs() -> Iterator[None]:
    """Keeps JAX from reading a compiled program that an earlier round, or run, has left on disk."""
    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


class _Steps:
    """A program that is run again and again from where it is."""

    def __init__(self, side: Side, state: Mapping[str, np.ndarray]):
        self._side, self._state = side, side.placed(state)
        self._batch = side.placed_inputs(side.build.inputs(SEED))
        self.count = 1

    def __call__(self) -> float:
        compiled = self._side.compiled
        with self._side.backend.context(self._side.mesh):
            start = time.perf_counter()
            for _ in range(self.count):
                outputs = compiled(self._state, self._batch)
                self._state = outputs.get(Group.STATE, self._state)
            jax.block_until_ready(outputs)
            return time.perf_counter() - start


def _step(work: Comparison) -> tuple[_Steps, _Steps]:
    """Returns both sides, so many steps a round that the clock can tell."""
    sides = _Steps(work.reference, work.state), _Steps(work.candidate, work.candidate_state)
    for steps in sides:
        steps()
    count = int(np.clip(np.ceil(BRIEF / max(sides[0](), 1e-9)), 1, MOST_STEPS))
    for steps in sides:
        steps.count = count
    return sides


MEASURES: Mapping[str, Callable[[Comparison], tuple[Callable[[], float], Callable[[], float]]]] = {
    "compile": lambda work: (_compile(work.reference), _compile(work.candidate)),
    "step": _step,
}


def speed(work: Comparison) -> ChannelResult:
    """Times what is budgeted, compiling or stepping, of both sides in turn."""
    budgets = budgets_for("speed", work.case.budgets)
    with work.bench.clock.phase("both sides", "execute"):
        found = {name: paired(MEASURES[name](work)) for name in MEASURES if name in budgets}
    findings = [
        _finding(name, times, budgets[name])
        for name, times in found.items()
        if times.low > budgets[name].ratio  # a slack is in bytes or pieces, and no share of a ratio
    ]
    words = [
        f"{name} {times.middle:.2f} x, budget {budgets[name].sentence()}" for name, times in found.items()
    ]
    return ChannelResult(
        name="speed",
        verdict=Verdict.FAILED if findings else Verdict.EQUAL,
        detail="; ".join(words),
        findings=tuple(findings),
        measures={f"{name}_ratio": times.middle for name, times in found.items()},
        tables={"speed": [_row(name, times) for name, times in found.items()]},
    )


def _row(name: str, times: Paired) -> dict[str, str | float]:
    medians = np.median(times.seconds, axis=0)
    sides = {f"{side}_seconds": float(value) for side, value in zip(SIDES, medians, strict=True)}
    return {"quantity": name, **sides, "ratio": times.middle, "low": times.low, "rounds": len(times.ratios)}


def _finding(name: str, times: Paired, budget: Budget) -> Finding:
    ours, theirs = (f"{value * 1e3:,.2f} ms" for value in np.median(times.seconds, axis=0))
    spread = f"{times.ratios.min():.2f} to {times.ratios.max():.2f} in {len(times.ratios)} rounds"
    return Finding(
        where=f"time to {name}",
        reference=ours,
        candidate=theirs,
        distance=f"{times.middle:.2f} x ({spread}), budget {budget.sentence()}",
        next_step=f"mend it, or raise budgets.speed.{name} with a reason",
    )


def _not_asked(work: Comparison) -> str:
    if not budgets_for("speed", work.case.budgets):
        return "no budget says how much slower it may be"
    if not work.reference.backend.executes:
        return f"{work.reference.backend.name} runs nothing, and compiles in workers of its own"
    return ""


CHANNEL = Channel(
    name="speed",
    about="time to compile and to run a step, both sides in turn, where a budget says how much it may be",
    column="mem",
    aspect=Aspect.STRUCTURE,
    needs=Need.RUN,
    judge=speed,
    settled=Settled.LOWERED,
    applies=_not_asked,
)
