"""Outcome of a mutant."""

import dataclasses
import enum

__all__ = ["Outcome", "Status"]


class Status(enum.StrEnum):
    """``survived`` and ``alarm`` (a benign edit that did not pass) are defects; ``broken`` could not be tried."""

    SURVIVED = "survived"
    ALARM = "alarm"
    BROKEN = "broken"
    KILLED = "killed"
    PASSED = "passed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of one mutant.

    Args:
        id: id of the mutant.
        content: digest of all its inputs; see `parity.mutants.campaign.content_of`.
        status: the result.
        by: the channels that blocked, or ``oracle``.
        missed: channels that were expected to block and did not.
        unnamed: expected words that the output lacks.
        floors: the largest deviation of a leaf, over its measured noise; None if all bits are equal, or a proof
            made the run unnecessary.
        why: the sentence of the run; for a mutant that could not be tried, the reason.
        seconds: of wall time.
    """

    id: str
    content: str
    status: Status
    by: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    floors: float | None = None
    why: str = ""
    seconds: float = 0.0

    @property
    def as_expected(self) -> bool:
        """True if killed by all expected channels with all expected words, or benign and passed."""
        return self.status in (Status.KILLED, Status.PASSED) and not self.missed and not self.unnamed
