"""Which microbatch is where at which iteration of a pipeline. Framework-free arithmetic.

S stages, M microbatches, R repeats, d delay. Every method takes Python ints and traced integers alike.
"""

import dataclasses
import enum
from typing import Any

import jax.numpy as jnp

__all__ = ["Schedule", "Source"]


class Source(enum.StrEnum):
    """Where the first stage takes its input from."""

    WAITING = "waiting"
    STORAGE = "storage"
    SHIFT = "shift"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """Microbatches through stages, ``repeats`` times around.

    Args:
        stages: S, what runs at the same time.
        microbatches: M, a multiple of S; with repeats at least ``S * delay``.
        repeats: R, how often a microbatch passes all stages.
        delay: iterations a result needs to the next stage, 1 or 2.
    """

    stages: int
    microbatches: int
    repeats: int = 1
    delay: int = 1

    @property
    def iterations(self) -> int:
        """How often all stages run."""
        return self.microbatches * self.repeats + self.lag

    @property
    def lag(self) -> int:
        """Iterations between the first stage's work on a microbatch and the last one's; the bubble."""
        return self.delay * (self.stages - 1)

    @property
    def slots(self) -> int:
        """Microbatches that wait at each stage, and in the end the outputs there."""
        return self.microbatches // self.stages

    @property
    def has_storage(self) -> bool:
        """Whether a microbatch comes around before the first stage can take it, and has to be kept."""
        return self.repeats > 1 and self.microbatches > self.stages * self.delay

    @property
    def source_of_repeats(self) -> Source:
        """Where the first stage takes its input from once every microbatch has started."""
        return Source.STORAGE if self.has_storage else Source.SHIFT

    @property
    def rotates(self) -> bool:
        """Whether the last stage's result moves straight to the first."""
        return self.repeats > 1 and not self.has_storage

    def source(self, iteration: int) -> Source:
        """Returns where the first stage takes its input from; a Python int only."""
        return Source.WAITING if iteration < self.microbatches else self.source_of_repeats

    def processed(self, iteration: Any, stage: Any) -> Any:
        """Returns how many microbatches a stage has finished, counted over repeats; 0 in its first bubbles."""
        return _clip(iteration - self.delay * stage, 0, self.microbatches * self.repeats)

    def microbatch(self, iteration: Any, stage: Any) -> Any:
        """Returns the number of the microbatch a stage works on; some number in its bubbles."""
        return self.processed(iteration, stage) % self.microbatches

    def repeat(self, iteration: Any, stage: Any) -> Any:
        """Returns the repeat whose weights a stage uses; the nearest one in its bubbles."""
        return _clip(self.processed(iteration, stage) // self.microbatches, 0, self.repeats - 1)

    def slot(self, iteration: Any) -> Any:
        """Returns the slot of ``waiting`` that is read, moved on and written."""
        return iteration % self.slots

    def stored(self, iteration: Any) -> Any:
        """Returns the index of ``storage`` that the first stage reads."""
        return iteration % self.microbatches

    def storing(self, iteration: Any) -> Any:
        """Returns the index of ``storage`` that is written: the last stage's previous result."""
        return (iteration - self.lag - 1) % self.microbatches

    @property
    def first_slot(self) -> int:
        """The slot that holds the output of microbatch 0 in the end."""
        return (self.microbatches * (self.repeats - 1) + self.lag) % self.slots


def _clip(number: Any, low: int, high: int) -> Any:
    if isinstance(number, int):
        return min(max(number, low), high)
    return jnp.clip(number, low, high)
