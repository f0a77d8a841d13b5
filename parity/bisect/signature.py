"""The failure that is bisected: channel, leaf, kind."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any

from parity.verdicts import BLOCKING, ChannelResult

__all__ = ["Signature", "Status"]


class Status(enum.StrEnum):
    """Result of a case, compared with a failure.

    ``other``: it fails in another way, or cannot be built, so it is inconclusive. ``ambiguous``: two runs disagree.
    """

    FAILS = "fails"
    PASSES = "passes"
    OTHER = "other"
    AMBIGUOUS = "ambiguous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """The properties by which two failures are the same.

    Args:
        channel: the channel that fails.
        leaf: the leaf that differs, without numbers such as layers and indices.
        kind: the verdict; for an error also its detail.
    """

    channel: str
    leaf: str
    kind: str

    def __str__(self) -> str:
        return f"{self.channel} {self.kind} at {self.leaf}" if self.leaf else f"{self.channel} {self.kind}"

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

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Signature":
        """Returns the signature that ``dataclasses.asdict`` wrote."""
        return cls(**{field.name: str(record[field.name]) for field in dataclasses.fields(cls)})


def _kind(result: ChannelResult) -> str:
    return f"{result.verdict} {result.detail}" if result.verdict == "error" else str(result.verdict)


def _leaf(where: str) -> str:
    return re.sub(r"\d+", "#", re.sub(r"\[[^]]*\]$", "", where))
