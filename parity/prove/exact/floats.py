"""Element types of floats: the numbers that they represent, and those that they convert to infinity or NaN."""

import functools
import math
import re
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

__all__ = ["fits", "holds", "in_range", "rounded"]


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
