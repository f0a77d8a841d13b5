"""Which failure is bisected: a channel, what differs, and how; and whether a case still fails alike."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any

from parity.cases.case import Case
from parity.comparison.comparison import Workbench
from parity.running.run import CaseResult, run_case
from parity.verdicts import BLOCKING, ChannelResult

__all__ = ["Answer", "Judge", "Signature", "signature_of"]


class Answer(enum.StrEnum):
    """What a case says when it is asked whether it fails alike.

    ``other``: it fails, but otherwise, or cannot be built: it tells nothing. ``ambiguous``: asked twice, it says
    two things.
    """

    FAILS = "fails"
    PASSES = "passes"
    OTHER = "other"
    AMBIGUOUS = "ambiguous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """What makes two failures the same.

    Args:
        channel: the channel that fails.
        leaf: what differs, numbers such as layers and indices left out.
        kind: the verdict, with the kind of exception where it is an error.
    """

    channel: str
    leaf: str
    kind: str

    def __str__(self) -> str:
        return f"{self.channel} {self.kind} at {self.leaf}" if self.leaf else f"{self.channel} {self.kind}"

    def of(self, result: ChannelResult) -> bool:
        """Whether a channel's result is this failure: the leaf may be any of those that it names."""
        return (
            self.channel == result.name
            and self.kind == _kind(result)
            and (not self.leaf or any(self.leaf == _leaf(finding.where) for finding in result.findings))
        )

    @classmethod
    def seen(cls, result: ChannelResult) -> "Signature":
        """Returns the signature of a channel that fails: what its first finding names."""
        leaf = _leaf(result.findings[0].where) if result.findings else ""
        return cls(channel=result.name, leaf=leaf, kind=_kind(result))

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Signature":
        """Returns the signature that ``dataclasses.asdict`` wrote."""
        return cls(**{field.name: str(record[field.name]) for field in dataclasses.fields(cls)})


def signature_of(result: CaseResult, channel: str = "") -> Signature | None:
    """Returns the signature of a case's worst failure; None where nothing fails.

    Args:
        result: of the case.
        channel: the channel that is asked about; the worst by default.
    """
    blocking = [each for each in result.blocking if not channel or each.name == channel]
    if not blocking:
        return None
    return Signature.seen(blocking[0])


def _kind(result: ChannelResult) -> str:
    return f"{result.verdict} {result.detail}" if result.verdict == "error" else str(result.verdict)


def _leaf(where: str) -> str:
    return re.sub(r"\d+", "#", re.sub(r"\[[^]]*\]$", "", where))


class Judge:
    """Asks cases whether they fail alike.

    Args:
        signature: the failure.
        bench: where what cases share is kept.
    """

    def __init__(self, signature: Signature, bench: Workbench | None = None):
        self.signature, self._bench = signature, bench or Workbench()
        self.asked = 0

    def ask(self, case: Case) -> Answer:
        """Returns whether a case fails alike.

        Args:
            case: to be run on the signature's channel.
        """
        return self._once(case, self._bench)

    def ask_twice(self, case: Case) -> Answer:
        """Returns the same, or ``ambiguous`` where a second run that shares nothing with the first disagrees."""
        first = self.ask(case)
        return first if self._once(case, Workbench()) is first else Answer.AMBIGUOUS

    def _once(self, case: Case, bench: Workbench) -> Answer:
        self.asked += 1
        result = run_case(case, bench, (self.signature.channel,))
        found = result.channels.get(self.signature.channel)
        if found is None:
            return Answer.OTHER
        if self.signature.of(found):
            return Answer.FAILS
        return Answer.OTHER if found.verdict in BLOCKING else Answer.PASSES
