"""Schedule of the microbatches in the stages of a pipeline. Framework-free arithmetic.

S stages, M microbatches, R repeats, d delay. Every method except `Schedule.source` takes Python ints and traced
integers.
"""

import dataclasses
import enum
from typing import Any

import jax.numpy as jnp

__all__ = ["Schedule", "Source"]


class Source(enum.StrEnum):
    """Source of the first stage's input."""

    WAITING = "waiting"
    STORAGE = "storage"
    SHIFT = "shift"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of microbatches that pass all stages ``repeats`` times.

    Args:
        stages: S, stages that run at the same time.
        microbatches: M, a multiple of S; with repeats at least ``S * delay``.
        repeats: R, number of times that a microbatch passes all stages.
        delay: iterations until a result reaches the next stage, 1 or 2.
    """

    stages: int
    microbatches: int
    repeats: int = 1
    delay: int = 1

    @property
    def iterations(self) -> int:
        """Number of iterations, in each of which all stages run."""
        return self.microbatches * self.repeats + self.lag

    @property
    def lag(self) -> int:
        """Iterations between the first stage's work on a microbatch and the last one's; the bubble."""
        return self.delay * (self.stages - 1)

    @property
    def slots(self) -> int:
        """Number of microbatches that wait at each stage; at the end, number of outputs there."""
        return self.microbatches // self.stages

    @property
    def has_storage(self) -> bool:
        """True if a microbatch returns before the first stage can process it, and must be stored."""
        return self.repeats > 1 and self.microbatches > self.stages * self.delay

    @property
    def source_of_repeats(self) -> Source:
        """Source of the first stage's input after every microbatch has started."""
        return Source.STORAGE if self.has_storage else Source.SHIFT

    @property
    def rotates(self) -> bool:
        """True if the last stage's result moves directly to the first."""
        return self.repeats > 1 and not self.has_storage

    def source(self, iteration: int) -> Source:
        """Returns the source of the first stage's input; takes a Python int only."""
        return Source.WAITING if iteration < self.microbatches else self.source_of_repeats

    def processed(self, iteration: Any, stage: Any) -> Any:
        """Returns the number of microbatches that a stage has finished, over all repeats; 0 in its first bubbles."""
        return _clip(iteration - self.delay * stage, 0, self.microbatches * self.repeats)

    def microbatch(self, iteration: Any, stage: Any) -> Any:
        """Returns the number of the microbatch that a stage processes; an arbitrary one in its bubbles."""
        return self.processed(iteration, stage) % self.microbatches

    def repeat(self, iteration: Any, stage: Any) -> Any:
        """Returns the repeat whose weights a stage uses; the nearest one in its bubbles."""
        return _clip(self.processed(iteration, stage) // self.microbatches, 0, self.repeats - 1)

    def slot(self, iteration: Any) -> Any:
        """Returns the slot of ``waiting`` that is read, shifted between stages and written."""
        return iteration % self.slots

    def stored(self, iteration: Any) -> Any:
        """Returns the index of ``storage`` that the first stage reads."""
        return iteration % self.microbatches

    def storing(self, iteration: Any) -> Any:
        """Returns the index of ``storage`` that is written: the last stage's previous result."""
        return (iteration - self.lag - 1) % self.microbatches

    @property
    def first_slot(self) -> int:
        """The slot that holds the output of microbatch 0 at the end."""
        return (self.microbatches * (self.repeats - 1) + self.lag) % self.slots


def _clip(number: Any, low: int, high: int) -> Any:
    if isinstance(number, int):
        return min(max(number, low), high)
    return jnp.clip(number, low, high)
