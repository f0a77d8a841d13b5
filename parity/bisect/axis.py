"""Interface of the searches: a failure, a question about it, and the result as a sentence and a table."""

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping

from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.run.record import CaseResult
from parity.run.run import run_case
from parity.verdicts import BLOCKING, ChannelResult


class Status(enum.StrEnum):
    """Result of a case, compared with a failure.

    ``other``: it fails in another way, or cannot be built, so it is inconclusive.
    """

    FAILS = "fails"
    PASSES = "passes"
    OTHER = "other"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """The properties by which two failures are the same.

    Args:
        leaf: the leaf that differs, without numbers such as layers and indices.
        kind: the verdict; for an error also its detail.
    """

    channel: str
    leaf: str
    kind: str

    def __str__(self) -> str:
        at = f" at {self.leaf}" if self.leaf and self.channel != "program" else ""
        return f"{self.channel} {self.kind}{at}"

    def of(self, result: ChannelResult) -> bool:
        """True if a channel's result is this failure; the leaf may be any of those that its findings name."""
        return (
            self.channel == result.name
            and self.kind == _kind(result)
            and (not self.leaf or any(self.leaf == _leaf(finding.where) for finding in result.findings))
        )

    def status(self, channels: Mapping[str, ChannelResult]) -> Status:
        """Returns the status of a case from the results of its channels."""
        result = channels.get(self.channel)
        if result is None:
            return Status.OTHER
        if self.of(result):
            return Status.FAILS
        return Status.OTHER if result.verdict in BLOCKING else Status.PASSES

    @classmethod
    def seen(cls, result: ChannelResult) -> "Signature":
        """Returns the signature of a failing channel, with the leaf of its first finding."""
        leaf = _leaf(result.findings[0].where) if result.findings else ""
        return cls(channel=result.name, leaf=leaf, kind=_kind(result))


def _kind(result: ChannelResult) -> str:
    return f"{result.verdict} {result.detail}" if result.verdict == "error" else str(result.verdict)


def _leaf(where: str) -> str:
    return re.sub(r"\d+", "#", re.sub(r"\[[^]]*\]$", "", where))


def signature_of(result: CaseResult) -> Signature | None:
    """Returns the signature of a case's worst failure; None if nothing fails."""
    worst = next(iter(result.blocking), None)
    return Signature.seen(worst) if worst else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A failure, and the context of the search for its cause.

    Args:
        remade: makes the case under some of the given settings; None if there are none.
        notify: called with the next attempt, as text.
    """

    case: Case
    signature: Signature
    bench: Session = dataclasses.field(default_factory=Session)
    remade: Callable[[Mapping[str, str]], Case] | None = None
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notify: Callable[[str], None] = lambda words: None

    def work(self, case: Case | None = None) -> Evidence:
        """Returns the sides of the case, or of another one that is made from it."""
        return Evidence.of(case or self.case, self.bench)

    def status(self, case: Case, *, fresh: bool = False) -> Status:
        """Returns the status of a case; a fresh run shares no caches."""
        session = self.bench.renewed() if fresh else self.bench
        return self.signature.status(run_case(case, session, (self.signature.channel,)).channels)

    def status_of(self, make: Callable[[], Case]) -> Status:
        """Returns the status of a case that may have settings that exclude each other, which are inconclusive."""
        try:
            return self.status(make())
        except (ValueError, TypeError):
            return Status.OTHER

    def is_ambiguous(self, case: Case) -> bool:
        """Returns True if a second run, without shared caches, disagrees."""
        return self.status(case) is not self.status(case, fresh=True)
