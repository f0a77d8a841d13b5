"""Elements of a program as on the machine: integers that wrap around, their tables, values of float types."""

import functools
import math
import operator
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np

from parity.prove.exact.terms import REAL, RefusalError, Terms
from parity.prove.rules.types import FLOATS

COMPARE = {name: getattr(operator, name.lower()) for name in ("EQ", "NE", "LT", "LE", "GT", "GE")}


def width(sort: str) -> int:
    """Returns the bits of an integer type such as ``ui32``."""
    return int(sort.lstrip("sui"))


def is_signed(sort: str) -> bool:
    """True if an integer type has a sign."""
    return not sort.startswith("u")


def widens(narrow: str, wide: str) -> bool:
    """True if every value of one type of floats is a value of another."""
    known = narrow in FLOATS and wide in FLOATS
    return known and all(a <= b for a, b in zip(FLOATS[narrow], FLOATS[wide], strict=True))


def wrap(value: int, sort: str) -> int | bool:
    """Returns the value as represented in ``sort``."""
    if sort == "i1":
        return bool(value)
    bits = width(sort)
    value &= (1 << bits) - 1
    return value - (1 << bits) if is_signed(sort) and value >> (bits - 1) else value


def saturate(value: float | Fraction | str, sort: str) -> int | bool:
    """Returns the integer to which a float, or ``inf``, ``-inf``, ``nan``, converts: truncated, clipped; NaN to 0."""
    if sort == "i1":
        return value != 0
    count = 1 << width(sort)
    low = -count // 2 if is_signed(sort) else 0
    high = low + count - 1
    if isinstance(value, str):
        return {"inf": high, "-inf": low, "nan": 0}[value]
    return min(max(math.trunc(value), low), high)


FOLDS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "remainder": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    "maximum": max,
    "minimum": min,
    "and": lambda *values: functools.reduce(operator.and_, values),
    "or": lambda *values: functools.reduce(operator.or_, values),
    "xor": operator.xor,
    "not": lambda a: not a if isinstance(a, bool) else ~a,
    "negate": operator.neg,
    "abs": abs,
    "convert": int,
    "select": lambda chosen, yes, no: yes if chosen else no,
    "sign": lambda a: (a > 0) - (a < 0),
    "clamp": lambda low, x, high: min(max(x, low), high),
}


def fold(name: str, values: Sequence[Any], sort: str, detail: Hashable) -> int | bool | None:
    """Returns the result of an operation on constants; None if it cannot be computed.

    Args:
        detail: the direction of a comparison.
    """
    if name == "compare":
        return COMPARE[str(detail)](*values)
    if name not in FOLDS or (name in ("divide", "remainder") and values[1] == 0):
        return None
    return wrap(FOLDS[name](*values), sort)


@functools.cache
def _dtype(element: str) -> np.dtype:
    """Returns the NumPy type of ``bf16``, ``f32``, ``f8E4M3FN`` and similar types."""
    name = re.sub(r"^f(\d+)", r"float\1_", element).rstrip("_").lower()
    return jnp.dtype("bfloat16" if element == "bf16" else name)


def rounded(value: Fraction | int | str, element: str) -> float:
    """Returns the float of an element type to which a number is converted, or ``inf``, ``-inf``, ``nan``."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if Fraction(value) > 0 else -math.inf
    with np.errstate(all="ignore"):
        return float(np.float64(number).astype(_dtype(element)))


def in_range(value: Fraction | int | str, element: str) -> bool:
    """True if a number is converted to the nearest value of an element type, not clipped, nor to infinity or NaN."""
    if isinstance(value, str):
        return str(rounded(value, element)) == value
    return math.isfinite(rounded(value, element)) and abs(value) <= float(jnp.finfo(_dtype(element)).max)


def holds(value: Fraction | int, element: str) -> bool:
    """True if a number is a value of an element type."""
    return rounded(value, element) == value


def fits(count: int, element: str) -> bool:
    """True if all whole numbers below ``count`` are values of an element type."""
    return count <= 2 ** (int(jnp.finfo(_dtype(element)).nmant) + 1)


LONGEST = 4_096
"""Longest table."""


class Tables:
    """Functions of one integer of known range, as their values over that range.

    Attributes:
        ranges: minimum and maximum plus one, by term of an input.
    """

    def __init__(self, terms: Terms):
        self.terms = terms
        self.ranges: dict[int, tuple[int, int]] = {}

    def limit(self, cells: Iterable[int], within: tuple[int, int]) -> None:
        """Assumes that cells are in a range; its second value is excluded."""
        low, high = within
        if not 0 < high - low <= LONGEST:
            raise RefusalError(f"got a range of {high - low} integers, expected 1 to {LONGEST}")
        for cell in cells:
            if self.terms.node(cell).sort in (REAL, "i1"):
                raise RefusalError("got a range of what is no integer")
            self.ranges[self.terms.term(cell)] = within

    def tabulate(
        self, name: str, cells: Sequence[int], known: Sequence[Any], sort: str, detail: Hashable
    ) -> tuple[int, int, tuple[Any, ...]] | None:
        """Returns the integer that a function depends on, its minimum, and the function's values over its range.

        It is None if it is not a function of a single integer of known range.

        Args:
            name, cells, sort, detail: as for `Algebra.map`; of integers or booleans.
            known: the values of operands that are constants.
        """
        if not self.ranges:
            return None
        columns, base = [], None
        for cell, literal in zip(cells, known, strict=True):
            if literal is not None:
                columns.append(literal)
                continue
            found = self._column(cell)
            if found is None or base not in (None, found[0]):
                return None
            base = found[0]
            columns.append(found[1])
        if base is None:
            return None
        low, high = self.ranges.get(self.terms.term(base), (0, 0))
        rows = [
            [column[place] if isinstance(column, tuple) else column for column in columns]
            for place in range(high - low)
        ]
        made = tuple([fold(name, row, sort, detail) for row in rows])
        return None if None in made else (base, low, made)

    def _column(self, cell: int) -> tuple[int, tuple[Any, ...]] | None:
        """Returns the integer that a cell depends on, and the values of the function."""
        node = self.terms.node(cell)
        if node.kind == "map" and isinstance(node.params, tuple) and node.params[0] == "table":
            return self.terms.open(cell)[1][0], node.params[1][1]
        found = self.ranges.get(self.terms.term(cell))
        return None if found is None else (cell, tuple(range(*found)))
