"""Parsed types of arrays, and the values that conversions between their elements preserve."""

import dataclasses
import functools
import math
import re

import numpy as np

_ARRAY = re.compile(r"tensor<((?:\d+x)*)((?:u?i\d+)|bf16|f16|f32|f64|complex<f\d+>|f\d+E\w+)>")
_INTEGER = re.compile(r"u?i(\d+)")
FLOATS = {"bf16": (8, 7), "f16": (5, 10), "f32": (8, 23), "f64": (11, 52)}
_NUMPY = {f"{sign}i{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {
    "i1": "bool"
}


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """The type of an array.

    Args:
        shape: its sizes, none of them zero.
        element: the type of its elements, as MLIR prints it.
    """

    shape: tuple[int, ...]
    element: str

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@functools.lru_cache(maxsize=65536)
def parse_array(text: str) -> Array | None:
    """Returns the type in a text; None for unknown elements or sizes, and for arrays without elements."""
    match = _ARRAY.fullmatch(text)
    if match is None:
        return None
    shape = tuple(int(size) for size in match.group(1).split("x")[:-1])
    return None if 0 in shape else Array(shape, match.group(2))


@functools.cache
def is_narrow(element: str) -> bool:
    """True if elements are floats of fewer than 32 bits."""
    return element in ("bf16", "f16") or re.fullmatch(r"f\d+E\w+", element) is not None


@functools.cache
def is_whole_number(element: str) -> bool:
    """True if elements are integers or booleans, whose arithmetic is exact."""
    return _INTEGER.fullmatch(element) is not None


def is_number(element: str) -> bool:
    """True for types in which zero and one are distinct values: integers and the common floats."""
    return element in FLOATS or is_whole_number(element)


def numpy_type(element: str) -> np.dtype | None:
    """Returns the NumPy type of integers and booleans that fill whole bytes; None for all others."""
    name = _NUMPY.get(element)
    return None if name is None else np.dtype(name)


def holds(value: float, element: str) -> bool:
    """True if a finite number is a value of a float type without rounding, and is zero or normal there."""
    if element not in FLOATS or not math.isfinite(value):
        return False
    exponents, mantissa = FLOATS[element]
    fraction, exponent = math.frexp(value)
    most = 2 ** (exponents - 1)
    normal = 3 - most <= exponent <= most
    return value == 0 or (normal and (fraction * 2 ** (mantissa + 1)).is_integer())


def reciprocal(value: float, element: str) -> float | None:
    """Returns the reciprocal of a power of two; None for other numbers, and if it is not normal in the type."""
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    return 1 / value if holds(value, element) and holds(1 / value, element) else None
