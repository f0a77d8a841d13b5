"""A run as far as it went: its results, and what of it is incomplete."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from parity.run.run import CaseResult
from parity.run.shard import Shard

__all__ = ["Run"]


@dataclasses.dataclass
class Run:
    """A run as far as it went.

    Args:
        environment: versions, flags, devices, commit.
        planned: how many cases were to run.
        results: of those that did.
        seconds: wall time.
        disagreements: how computed verdicts differ from the cached ones, in sentences.
        shard: which part of the cases this run took; None for all.
        followed: where failures come from, by id of the case: the records of `parity bisect`.
        stopped: why the run was ended before its last case, by its own options; empty if it was not.
        changed: what changed since the last run, so that cached verdicts are not reused.
        uncached: what changed during this run, so that none of its verdicts is cached.
    """

    environment: dict[str, object]
    planned: int
    results: list[CaseResult] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    disagreements: list[str] = dataclasses.field(default_factory=list)
    shard: Shard | None = None
    followed: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    stopped: str = ""
    changed: list[str] = dataclasses.field(default_factory=list)
    uncached: list[str] = dataclasses.field(default_factory=list)

    @property
    def partial(self) -> bool:
        """True if the run ended before its last case."""
        return len(self.results) < self.planned
