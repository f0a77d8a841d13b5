"""First operations in which two programs differ, as data and as text."""

import dataclasses
import enum
import math
import re
from collections.abc import Mapping

from parity.ir.functions import origin, setting_call
from parity.ir.given import given_at, written
from parity.ir.location import SourceLocation
from parity.prove.counters import PLACES
from parity.verdicts import SIDES, Doubt, Finding

_FIELD = re.compile(r"(\w+) = (.+?)(?=, \w+ = |>$)")
_MAX_TEXT = 80
SIZE = re.compile(r"\d+(?=x)")
"""A size in a type such as ``tensor<4x2xf32>``."""
MARKED = re.compile(r"array<i\d+: ([^>]*)>|#stablehlo<\w+ (\w+)>")
"""Attributes as MLIR marks them."""
GIVEN = re.compile(r", \w+ at ")
"""The end of a place that names a caller or a maker."""
RESULT = "result type: "
TABLE = "another table of constants, made outside the program"
MOST_ENTRIES = 8
"""Maximum number of reported places."""


class OtherOperand(str):
    """The text of a difference that is in the value of an operand, not in the operation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrontierSide:
    """One side of a difference.

    Args:
        operation: the operation's name.
        place: its source line, function and name stack.
        type: its result types.
    """

    operation: str
    place: SourceLocation
    type: str

    @property
    def name(self) -> str:
        """The operation's name without its dialect."""
        return self.operation.rpartition(".")[2]

    def against(self, other: "FrontierSide | None", *, unsure: bool = False) -> str:
        """Returns the place, with the operation and the caller if only they distinguish the two sides."""
        operation = "" if other and not unsure and other.operation == self.operation else f"{self.name} at "
        return f"{operation}{self.place.against(other.place if other else None, unsure=unsure)}"


class Trait(enum.StrEnum):
    """The one thing in which two operations on equal operands differ."""

    CONSTANT = "another constant"
    COMPARISON = "another comparison"
    PRECISION = "another precision"
    COUNTER = "another value of an integer counter"
    CONDITION = "a condition that only one side has"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unlike:
    """The difference between two operations of one name whose other operands are equal.

    Args:
        trait: the kind of difference.
        operation: the name of both.
        reference: the constant, direction, precision or value on the reference side, as text.
        candidate: the same on the candidate side.
        element: type of the constant's elements; empty for other traits.
        decides: True if results become equal once the candidate has the reference's value there.
        lasts: True if every reader of the result is a function that later operations cannot reverse.
    """

    trait: Trait
    operation: str
    reference: str
    candidate: str
    element: str = ""
    decides: bool = False
    lasts: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frontier:
    """A first difference: the operands agree, the operations do not.

    Args:
        where: the differing item: an operation, an argument, a result, a loop carry, the module.
        reference: the operation on the reference side, if there is one.
        candidate: the operation on the candidate side, if there is one.
        differences: the differences as text, reference first.
        unlike: the difference as data, if it is one trait of two operations on equal operands, or a condition of one
            side.
        unsure: True if the two operations may not correspond; each has no counterpart on the other side.
        cause: the likely cause in a few words; empty if unknown.
    """

    where: str
    reference: FrontierSide | None = None
    candidate: FrontierSide | None = None
    differences: tuple[str, ...] = ()
    unlike: Unlike | None = None
    unsure: bool = False
    cause: str = ""

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of its operations, the reference's first."""
        return tuple(side.operation for side in (self.reference, self.candidate) if side)

    def finding(self) -> Finding:
        """Returns the difference as a finding; a side that has no such operation is left out.

        Of two operations that may not correspond, one in library code alone is left out, too. If one is a constraint,
        the other one is.
        """
        sides = [self.reference, self.candidate]
        own = [side for side in sides if side and side.place.own]
        placing = [side for side in own if side.operation in PLACES]
        if self.unsure and 1 in (len(own), len(placing)):
            (one,) = placing if len(placing) == 1 else own
            only = (side if side is one else None for side in sides)
            return Frontier(where=one.operation, **dict(zip(SIDES, only, strict=True))).finding()
        reference, candidate = self._texts()
        return Finding(
            where=self._head(),
            reference=reference,
            candidate=candidate,
            cause=self.cause,
            doubts=self._doubts(),
        )

    def sentence(self) -> str:
        """Returns the difference as one sentence."""
        return self.finding().sentence()

    def _head(self) -> str:
        """Returns the operation and its differences; two operations of other names are named by the sides."""
        names = list(dict.fromkeys(self.operations))
        more = f" ({'; '.join(self.differences)})" if self.differences else ""
        if self.unsure:
            return "operations without a counterpart"
        if len(names) == 2:
            return f"another operation{more}"
        if not (self.reference and self.candidate) and [self.where] == names:
            return f"an operation that only the {'reference' if self.reference else 'candidate'} has{more}"
        return f"{self.where.rpartition('.')[2] if [self.where] == names else self.where}{more}"

    def _doubts(self) -> tuple[Doubt, ...]:
        if self.unsure:
            return (Doubt.PLACE,)
        if (
            self.unlike and self.unlike.trait is Trait.CONDITION
        ):  # as of a backward pass that the other side lacks
            return (Doubt.LATER,)
        others = [isinstance(line, OtherOperand) for line in self.differences]
        return (Doubt.OPERAND,) if any(others[:1]) else (Doubt.ALSO_OPERAND,) if any(others) else ()

    def _texts(self) -> list[str]:
        sides = ((self.reference, self.candidate), (self.candidate, self.reference))
        texts = [
            "" if side is None else _with_line(side.against(other, unsure=self.unsure), side, constant)
            for (side, other), constant in zip(sides, self._constants(), strict=True)
        ]
        outside = any(line.startswith(RESULT) for line in self.differences[:1])
        if outside or not PLACES.isdisjoint(self.operations):  # sizes and specs come from outside
            sizes = _changed_sizes(self.differences[0]) if outside else (None, None)
            texts = [
                _with_setting(text, side, size) if side else text
                for text, (side, _), size in zip(texts, sides, sizes, strict=True)
            ]
        return texts

    def _constants(self) -> tuple[str, str]:
        """The constant of each side as text; empty if they do not differ by one, or their lines are named anyway."""
        unlike, left, right = self.unlike, self.reference, self.candidate
        if not (unlike and left and right):
            return "", ""
        if (found := origin(left.place.own, right.place.own)) and found.how == "made":
            return "", ""
        return (unlike.reference, unlike.candidate) if unlike.trait is Trait.CONSTANT else ("", "")


def _with_line(text: str, side: FrontierSide, constant: str) -> str:
    """Returns the text of a side with the line outside of its function that holds its constant, or gives it."""
    known = [frame for frame in side.place.own if str(frame) in text]
    return f"{text}{given_at(number(constant), side.place.own, side.place.library, known)}"


def _with_setting(text: str, side: FrontierSide, size: float | None) -> str:
    """Returns the text of a side with the call that gives its settings, and the line that holds a size."""
    call = "" if GIVEN.search(text) else setting_call(side.place.own)
    held, _ = written(size, side.place.own, side.place.library)
    return f"{text}{call}{f', set at {held}' if held and str(held) not in text else ''}"


def _changed_sizes(line: str) -> tuple[float | None, float | None]:
    """Returns the only size in which two types differ, of each side; None if they differ in more, or in none."""
    left, right = (SIZE.findall(text) for text in line.partition(" against ")[::2])
    unlike = [(float(a), float(b)) for a, b in zip(left, right, strict=False) if a != b]
    return unlike[0] if len(unlike) == 1 and len(left) == len(right) else (None, None)


def number(text: str) -> float | None:
    """Returns the number in a constant's text; None if it is not a finite number."""
    try:
        found = float(text)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text)
    return found if math.isfinite(found) else None


def attribute_differences(left: Mapping[str, str], right: Mapping[str, str]) -> tuple[str, ...]:
    """Returns one line for each name, or field of an attribute, whose text differs."""
    one, other = (
        {field: value for name, text in side.items() for field, value in _fields(name, text)}
        for side in (left, right)
    )
    return tuple(
        f"{name}: {difference(one.get(name, 'absent'), other.get(name, 'absent'))}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    )


def _fields(name: str, text: str) -> list[tuple[str, str]]:
    """Returns the fields of an attribute such as ``#stablehlo.dot<...>``, or the attribute itself."""
    return (_FIELD.findall(text) if text.startswith("#stablehlo.") else []) or [(name, text)]


def short(text: str) -> str:
    """Returns a text, shortened if it is long."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def difference(left: str, right: str) -> str:
    """Returns two numbers with the digits that show the difference, or two texts from shortly before it."""
    left, right = (MARKED.sub(r"\1\2", text) for text in (left, right))
    numbers = [number(text) for text in (left, right) if text not in ("false", "true")]
    if len(numbers) == 2 and None not in numbers and numbers[0] != numbers[1]:
        texts = ([f"{value:.{digits}g}" for value in numbers] for digits in (4, 6, 9, 17))
        return " against ".join(next(pair for pair in texts if pair[0] != pair[1]))
    point = next((k for k, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    start = max(point - 40, 0) if max(len(left), len(right)) > _MAX_TEXT else 0
    return f"{short(left[start:])} against {short(right[start:])}"
