"""Interleaved timing: measures both sides alternately, so that background load affects both."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

__all__ = ["ROUNDS", "Paired", "interleave", "paired"]

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
        rounds: number of rounds.
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


def paired(sides: tuple[Callable[[], float], Callable[[], float]], rounds: int = ROUNDS) -> Paired:
    """Measures one quantity of both sides as `interleave` does."""
    one, other = sides
    return interleave((lambda: {"": one()}, lambda: {"": other()}), rounds)[""]
