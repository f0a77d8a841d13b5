"""What became of a mutant."""

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
    """What became of one mutant.

    Args:
        id: of the mutant.
        content: digest of all that decided it; see `parity.mutants.campaign.content_of`.
        status: what became of it.
        by: the channels that blocked, or ``oracle``.
        missed: channels that were expected to block and did not.
        unnamed: words that were expected and did not come.
        floors: the largest deviation of a leaf, over the noise measured for it; None where all bits are equal, or a
            proof spared the run.
        why: the sentence of the run; for what was not tried, the reason.
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
        """Killed by all that were to kill it, with the place named; or benign, and passed."""
        return self.status in (Status.KILLED, Status.PASSED) and not self.missed and not self.unnamed
