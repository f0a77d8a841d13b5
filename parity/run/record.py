"""The results and state of a run, complete or not."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from parity.run.run import CaseResult
from parity.run.shard import Shard

__all__ = ["Run"]


@dataclasses.dataclass
class Run:
    """A run, complete or not.

    Args:
        environment: versions, flags, devices, commit.
        planned: number of cases to run.
        results: results of the cases that ran.
        seconds: wall time.
        disagreements: how computed verdicts differ from the cached ones, in sentences.
        shard: the part of the cases that this run took; None for all.
        followed: origins of failures, by id of the case: the records of `parity bisect`.
        stopped: why the run's own options ended it before its last case; empty if they did not.
        changed: changes since the last run, which prevent the reuse of cached verdicts.
        uncached: changes during this run, which prevent the caching of its verdicts.
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
