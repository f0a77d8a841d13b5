"""The words every check answers in: verdict, finding, channel result."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["BLOCKING", "EXPECTED_GOT", "RUNGS", "ChannelResult", "Finding", "Row", "Verdict", "channel_of"]

Row = Mapping[str, str | int | float | None]
"""One line of a table by column; None is a number that is not known, or not finite."""

EXPECTED_GOT = ("expected", "got")
"""Labels of a finding on one side by itself."""


class Verdict(enum.StrEnum):
    """What a channel says of a case, best first.

    ``reordered``: the same operations on the same values, up to the order of operands of float additions,
    products, minima and maxima; bits may differ.
    ``exact``: equal for all inputs if numbers were exact; of rounding, and so of bits, it says nothing.
    ``open``: the question stands and was not answered, because the programs are not proved the same and the
    backend runs nothing. ``skipped``: there is no question. ``waived``: all that differs is accepted, with a reason.
    """

    PROVED = "proved"
    REORDERED = "reordered"
    BITWISE = "bitwise"
    FLOOR = "floor"
    ARBITRATED = "arbitrated"
    EXACT = "exact"
    TIE = "tie"
    EQUAL = "equal"
    WAIVED = "waived"
    UNPROVED = "unproved"
    SKIPPED = "skipped"
    OPEN = "open"
    FAILED = "failed"
    VACUOUS = "vacuous"
    ERROR = "error"


RUNGS = (
    Verdict.PROVED,
    Verdict.REORDERED,
    Verdict.BITWISE,
    Verdict.FLOOR,
    Verdict.ARBITRATED,
    Verdict.EXACT,
)
"""The ladder that values climb, the highest rung first."""

BLOCKING = frozenset({Verdict.FAILED, Verdict.VACUOUS, Verdict.ERROR, Verdict.OPEN})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One difference between the two sides of a case.

    Args:
        where: the leaf, loop, operation or option that differs.
        reference: what the reference build has there.
        candidate: what the candidate build has there.
        distance: how far apart they are, with its unit; empty where it makes no sense.
        cause: the likely cause in a few words; empty when nothing is known.
        next_step: what the reader can do now; empty when nothing is known.
        labels: what the two texts are, where they are not the two sides'; an empty text is left out.
        traceback: of an exception; empty where there was none.
        follows: differences that follow from this one, such as those of a parameter's moments; counted, not listed.
    """

    where: str
    reference: str
    candidate: str
    distance: str = ""
    cause: str = ""
    next_step: str = ""
    labels: tuple[str, str] = ("reference", "candidate")
    traceback: str = ""
    follows: tuple["Finding", ...] = ()

    def sentence(self) -> str:
        """Returns the finding as one sentence a person can act on."""
        texts = zip(self.labels, (self.reference, self.candidate), strict=True)
        parts = [f"{self.where}: " + ", ".join(f"{label} {text}".strip() for label, text in texts if text)]
        if self.distance:
            parts.append(self.distance)
        if self.cause:
            parts.append(f"likely {self.cause}")
        if self.next_step:
            parts.append(self.next_step)
        return "; ".join(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelResult:
    """The verdict of one channel on one case, with what it saw.

    Args:
        name: the channel.
        verdict: its answer.
        detail: what it saw, in a few words.
        findings: the differences, worst first.
        notes: what is worth knowing and keeps nothing from passing.
        measures: numbers for tools, such as operations or bytes.
        tables: rows by name, for reports that draw: leaves, loops, bytes of both sides.
    """

    name: str
    verdict: Verdict
    detail: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = dataclasses.field(default_factory=dict)


def channel_of(name: str, record: Mapping[str, Any]) -> ChannelResult:
    """Returns a channel's result from plain data, as `dataclasses.asdict` or a report has it.

    Args:
        name: the channel.
        record: its fields; what is absent is empty.
    """
    found = {kind: tuple(_finding_of(one) for one in record.get(kind, ())) for kind in ("findings", "notes")}
    rest = {kind: record[kind] for kind in ("detail", "measures", "tables") if kind in record}
    return ChannelResult(name=name, verdict=Verdict(record["verdict"]), **found, **rest)


def _finding_of(record: Mapping[str, Any]) -> Finding:
    labels = tuple(record.get("labels", ("reference", "candidate")))
    follows = tuple(_finding_of(one) for one in record.get("follows", ()))
    return Finding(**{**record, "labels": labels, "follows": follows})
