"""Results of checks: verdict, finding, channel result."""

import collections
import dataclasses
import enum
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Row = Mapping[str, str | int | float | None]
"""One row of a table by column; None is an unknown or non-finite number."""

SIDES = ("reference", "candidate")

EXPECTED_GOT = ("expected", "got")

OPTIONAL: Mapping[str, Any] = {"written": bool}
"""Metadata of fields that `plain` leaves out if they are empty."""
UNWRITTEN: Mapping[str, Any] = {"written": lambda value: False}
"""Metadata of fields that `plain` leaves out."""


class Verdict(enum.StrEnum):
    """Verdict of a channel on a case, best first: each before all that it implies, see `IMPLIES`.

    ``reordered``: the same operations on the same values, up to the order of operands of float additions,
    products, minima and maxima; bits may differ.
    ``exact``: equal for all inputs if numbers were exact; rounding, and so bits, may differ.
    ``open``: the channel applies but has no result, because the programs are not proved equal and the
    backend runs nothing. ``skipped``: the channel does not apply. ``waived``: all differences are accepted, with a
    reason.
    """

    PROVED = "proved"
    REORDERED = "reordered"
    BITWISE = "bitwise"
    FLOOR = "floor"
    ARBITRATED = "arbitrated"
    EXACT = "exact"
    EQUAL = "equal"
    TIE = "tie"
    WAIVED = "waived"
    UNPROVED = "unproved"
    SKIPPED = "skipped"
    OPEN = "open"
    FAILED = "failed"
    VACUOUS = "vacuous"
    ERROR = "error"


RUNGS = (Verdict.PROVED, Verdict.REORDERED, Verdict.BITWISE, Verdict.FLOOR, Verdict.ARBITRATED, Verdict.EXACT)
"""The ladder of rungs for values, the highest first; `IMPLIES` holds the implications between rungs."""

IMPLIES: Mapping[Verdict, tuple[Verdict, ...]] = {
    Verdict.PROVED: (Verdict.REORDERED, Verdict.BITWISE),
    Verdict.REORDERED: (Verdict.EXACT,),
    Verdict.BITWISE: (Verdict.FLOOR, Verdict.EQUAL),
    Verdict.FLOOR: (Verdict.ARBITRATED,),
    Verdict.ARBITRATED: (Verdict.TIE,),
    Verdict.EXACT: (Verdict.TIE,),
    Verdict.EQUAL: (Verdict.TIE,),
    **{one: (below,) for one, below in itertools.pairwise(list(Verdict)[list(Verdict).index(Verdict.TIE) :])},
    Verdict.ERROR: (),
}
"""The partial order of verdicts: those directly below each. Neither of two rungs may imply the other:
``reordered`` and ``exact`` do not cover numbers, ``bitwise`` and ``floor`` do not cover other inputs."""

BLOCKING = frozenset({Verdict.FAILED, Verdict.VACUOUS, Verdict.ERROR, Verdict.OPEN})


def implies(verdict: Verdict, other: Verdict) -> bool:
    """True if a verdict implies another."""
    return verdict is other or any(implies(below, other) for below in IMPLIES[verdict])


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict that comes last in `Verdict`: none of the others is below it."""
    return max(verdicts, key=list(Verdict).index)


@dataclasses.dataclass(frozen=True)
class Requirement:
    """Verdicts of which one must be reached: the least ones that satisfy it."""

    rungs: tuple[Verdict, ...]

    @classmethod
    def of(
        cls,
        given: "str | Iterable[str] | Requirement",
        where: str,
        known: Mapping[str, Sequence[Verdict]] | None = None,
    ) -> "Requirement":
        """Returns the requirement of one rung, or of several of which any is enough; ValueError if one is not known.

        Args:
            where: the option that gave them, for the message.
            known: name -> verdicts; the rungs of the ladder by default.
        """
        if isinstance(given, Requirement):
            return given
        names = known or {str(rung): (rung,) for rung in RUNGS}
        texts = [given] if isinstance(given, str) else list(given)
        wrong = [text for text in texts or ["nothing"] if text not in tuple(names)]
        if wrong:
            raise ValueError(f"{where}: got {wrong[0]!r}, expected one or several of {', '.join(names)}")
        return cls(tuple(dict.fromkeys(rung for text in texts for rung in names[text])))

    @property
    def accepted(self) -> frozenset[Verdict]:
        """All verdicts that satisfy it."""
        return frozenset(one for one in Verdict if any(implies(one, rung) for rung in self.rungs))

    def met_by(self, verdict: Verdict) -> bool:
        """True if a verdict implies one of the rungs."""
        return verdict in self.accepted

    def __and__(self, other: "Requirement") -> "Requirement":
        """Returns the requirement that exactly the verdicts satisfy that satisfy both."""
        both = self.accepted & other.accepted
        least = (one for one in both if not any(implies(one, two) for two in both - {one}))
        return Requirement(tuple(sorted(least, key=list(Verdict).index)))

    @property
    def of_programs(self) -> bool:
        """True if only equal operations satisfy it, so that programs are judged, not only numbers."""
        return self.accepted <= {Verdict.PROVED, Verdict.REORDERED}

    def __str__(self) -> str:
        return " or ".join(self.rungs)


ANY_RUNG = Requirement(RUNGS)
"""The default requirement, if no option is stricter."""


class Doubt(enum.StrEnum):
    """A reason why a difference may not be the cause of a failure."""

    PLACE = "place"  # another one may come before it
    LATER = "later"  # it may follow from values that differ before it
    OPERAND = "operand"  # only the value of an operand differs, which comes from elsewhere
    ALSO_OPERAND = "also_operand"  # such a value differs, too
    HARMLESS = "harmless"  # it may change no number
    NUMBERS = "numbers"  # the numbers decide
    GUESS = "guess"  # the weight map may have guessed wrongly


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One difference between the two sides of a case.

    Args:
        where: the leaf, loop, operation or option that differs.
        distance: size of the difference, with its unit; empty if it makes no sense.
        cause: the likely cause in a few words; empty if unknown.
        next_step: what the reader can do now; empty if unknown.
        labels: names of the two texts, if they are not those of the two sides; an empty text is left out.
        traceback: traceback of an exception; empty if there was none.
        follows: differences that follow from this one, such as those of a parameter's moments; counted, not listed.
        doubts: the reasons why it may not be the cause.
        leaf: the reference's leaf whose value or partner differs.
    """

    where: str
    reference: str
    candidate: str
    distance: str = ""
    cause: str = ""
    next_step: str = ""
    labels: tuple[str, str] = SIDES
    traceback: str = ""
    follows: tuple["Finding", ...] = dataclasses.field(default=(), metadata=OPTIONAL)
    doubts: tuple[Doubt, ...] = dataclasses.field(default=(), metadata=OPTIONAL)
    leaf: str = dataclasses.field(default="", metadata=OPTIONAL)

    @property
    def place(self) -> str:
        """The place, marked if it is not sure."""
        return f"not sure, {self.where}" if Doubt.PLACE in self.doubts else self.where

    def sides(self) -> list[tuple[str, str]]:
        """Returns the texts of both sides with their labels; an empty text is left out."""
        texts = zip(self.labels, (self.reference, self.candidate), strict=True)
        return [(label, text) for label, text in texts if text]

    def difference(self) -> str:
        """Returns the place and the texts of both sides; an empty text is left out."""
        texts = ", ".join(f"{label} {text}".strip() for label, text in self.sides())
        return f"{self.place}: {texts}" if texts else self.place

    def parts(self) -> list[str]:
        """Returns the difference, its size, its cause and the next step; empty ones are left out."""
        cause = f"likely {self.cause}" if self.cause else ""
        return [self.difference(), *filter(None, (self.distance, cause, self.next_step))]

    def sentence(self) -> str:
        """Returns the finding as one sentence a person can act on."""
        return "; ".join(self.parts())


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelResult:
    """The verdict of one channel on one case, with its details.

    Args:
        name: the channel; `Channel.look` sets it.
        findings: the differences, worst first.
        notes: remarks that do not affect the verdict.
        located: the place that a search by values found, which is the cause where the proof is not sure of one.
        measures: numbers for tools, such as operations or bytes.
        tables: rows by name, for graphical reports: leaves, loops, bytes of both sides.
    """

    name: str = dataclasses.field(default="", metadata=UNWRITTEN)
    verdict: Verdict
    detail: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = dataclasses.field(default=(), metadata=OPTIONAL)
    located: Finding | None = dataclasses.field(default=None, metadata=OPTIONAL)
    measures: Mapping[str, int | float] = dataclasses.field(default_factory=dict, metadata=OPTIONAL)
    tables: Mapping[str, Sequence[Row]] = dataclasses.field(default_factory=dict, metadata=OPTIONAL)


def plain(value: Any) -> Any:
    """Returns a result, or a record of results, as plain data for JSON."""
    if dataclasses.is_dataclass(value):
        fields = {one: getattr(value, one.name) for one in dataclasses.fields(value)}
        return {
            one.name: plain(held)
            for one, held in fields.items()
            if one.metadata.get("written", lambda value: True)(held)
        }
    if isinstance(value, msgspec.Struct):
        return {name: plain(one) for name, one in sorted(msgspec.structs.asdict(value).items()) if one}
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, str):
        return str(value)
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Returns items by their key, keys and items in the order given."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def repeated(items: Iterable[K]) -> list[K]:
    """Returns the items that occur more than once, in the order given."""
    return [item for item, count in collections.Counter(items).items() if count > 1]


def one_sided(side: str, own: Any, other: Any) -> dict[str, Any]:
    """Returns the arguments ``reference`` and ``candidate``, such as the texts of a finding: own of the named side."""
    return {**dict.fromkeys(SIDES, other), side: own}


def expected_got(where: str, expected: str, got: str, **rest: Any) -> "Finding":
    """Returns a finding that states what is expected and what is there, of one side or of both."""
    return Finding(where=where, reference=expected, candidate=got, labels=EXPECTED_GOT, **rest)


def shortened(lines: Sequence[str], most: int, end: str = "and {} more") -> list[str]:
    """Returns the first lines; if there are others, their number is the last line."""
    more = len(lines) - most
    return [*lines[:most], *([end.format(more)] if more > 0 else [])]


def listed(names: Sequence[str], most: int) -> str:
    """Returns the first names in one line, and the number of the others: ``a, b and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
