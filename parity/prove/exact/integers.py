"""Integers and booleans of a program, computed as on the machine: they wrap around."""

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any

__all__ = ["fold", "is_signed", "saturate", "width", "wrap"]

COMPARE = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def width(sort: str) -> int:
    """Returns the bits of an integer type such as ``ui32``."""
    return int(sort.lstrip("sui"))


def is_signed(sort: str) -> bool:
    """True if an integer type has a sign."""
    return not sort.startswith("u")


def wrap(value: int, sort: str) -> int | bool:
    """Returns the value as represented in ``sort``."""
    if sort == "i1":
        return bool(value)
    bits = width(sort)
    value &= (1 << bits) - 1
    return value - (1 << bits) if is_signed(sort) and value >> (bits - 1) else value


def saturate(value: float | Fraction | str, sort: str) -> int | bool:
    """Returns the integer to which a float is converted: truncated, clipped to the range of ``sort``; 0 for NaN.

    Args:
        value: a number, or ``inf``, ``-inf``, ``nan``.
        sort: sort of the result.
    """
    if sort == "i1":
        return value != 0
    low, high = (
        (-(1 << width(sort) - 1), (1 << width(sort) - 1) - 1)
        if is_signed(sort)
        else (0, (1 << width(sort)) - 1)
    )
    if isinstance(value, str):
        return {"inf": high, "-inf": low, "nan": 0}[value]
    return min(max(math.trunc(value), low), high)


def _divide(a: int, b: int) -> int | None:
    if b == 0:
        return None
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int | None:
    quotient = _divide(a, b)
    return None if quotient is None else a - quotient * b


FOLDS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divide,
    "remainder": _remainder,
    "maximum": max,
    "minimum": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "negate": operator.neg,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "clamp": lambda low, x, high: min(max(x, low), high),
}


def fold(name: str, values: Sequence[Any], sort: str, detail: Hashable) -> int | bool | None:
    """Returns the result of an operation on constants; None if it cannot be computed.

    Args:
        name: name of the operation.
        values: values of the operands.
        sort: sort of the result.
        detail: the direction of a comparison.
    """
    if name == "compare":
        return COMPARE[str(detail)](*values)
    if name == "not":
        return (not values[0]) if sort == "i1" else wrap(~values[0], sort)
    if name not in FOLDS:
        return None
    value = FOLDS[name](*values)
    return None if value is None else wrap(value, sort)
