"""Grades first differences: whether a verdict on them may rest on numbers."""

import math
from collections.abc import Sequence

import numpy as np

from parity.prove.frontier import Frontier, Trait, Unlike, number
from parity.prove.rules.types import is_whole_number

EPSILONS = {"f64": 2.0**-52, "f32": 2.0**-23, "tf32": 2.0**-10, "f16": 2.0**-10, "bf16": 2.0**-7}
WRITTEN = 1e-6
"""Relative tolerance within which two constants count as one, because people write constants with six digits."""
SETTING = "another setting of a library's function"
MASKS = -1e4, 1e30
"""Constants below or above these hide an entry, such as the fill of a mask or the start of a maximum."""


def grade(entry: Frontier) -> str:
    """Returns the reason why a first difference may not rest on numbers, as a phrase; empty if it may, or if undecided.

    Another form, order or grouping may rest on numbers. Another constant, comparison, precision or value of a counter
    may not, if it is the only difference of the programs, or if no later operation can undo it.
    """
    unlike = entry.unlike
    if unlike is None or not (unlike.decides or unlike.lasts):
        return ""
    if unlike.trait is Trait.CONSTANT and not _apart(unlike):
        return ""
    return str(unlike.trait)


def has_other_constant(entry: Frontier) -> bool:
    """True if two operations on equal operands differ in a constant, by more than a rounding."""
    unlike = entry.unlike
    return unlike is not None and unlike.trait is Trait.CONSTANT and _apart(unlike)


def is_setting(entry: Frontier) -> bool:
    """True if one line of a library uses another constant on each side, as its caller chose."""
    left, right = entry.reference, entry.candidate
    if left is None or right is None or not has_other_constant(entry):
        return False
    return left.place.library[:1] == right.place.library[:1] != ()


def regrouped(several: Sequence[Unlike]) -> bool:
    """True if constants may be the same ones in another order or grouping, given all differences that were removed."""
    constants = [one for one in several if one.trait is Trait.CONSTANT]
    if None in [number(text) for one in constants for text in (one.reference, one.candidate)]:
        return True  # its value is unknown, so it may compensate another
    constants = list(filter(_apart, constants))
    left, right = ({one.reference for one in constants}, {one.candidate for one in constants})
    if left & right:
        return True
    if len(constants) < 2:
        return False
    added = [sum(_signed(one, side) for one in constants) for side in (0, 1)]
    multiplied = [sum(_power(one, side) for one in constants) for side in (0, 1)]
    return any(math.isclose(*pair, rel_tol=WRITTEN, abs_tol=1e-12) for pair in (added, multiplied))


def apart_in(left: np.ndarray | None, right: np.ndarray | None) -> list[str] | None:
    """Returns the entries with the largest difference of two tables, as text; None unless most entries are equal.

    A table that was computed differently differs in many entries, none of which is significant.
    """
    if left is None or right is None or left.size != right.size or left.size < 2:
        return None
    tables = [table.reshape(-1).astype(np.float64) for table in (left, right)]
    unequal = np.flatnonzero((tables[0] != tables[1]) & np.isfinite(tables[0]) & np.isfinite(tables[1]))
    if not 0 < 2 * len(unequal) <= left.size:
        return None
    distances = np.abs(tables[0][unequal] - tables[1][unequal])
    if distances.max() <= WRITTEN * max(np.abs(table[np.isfinite(table)]).max() for table in tables):
        return None
    worst = unequal[np.argmax(distances)]
    return [repr(float(table[worst])) for table in tables]


def _apart(unlike: Unlike) -> bool:
    """True if two constants are numbers that no rounding explains, and not both the fill of a mask."""
    left, right = number(unlike.reference), number(unlike.candidate)
    if left is None or right is None:
        return False
    if max(left, right) <= MASKS[0] or min(left, right) >= MASKS[1]:
        return False
    if is_whole_number(unlike.element):
        return left != right
    near = max(2 * EPSILONS.get(unlike.element, 0.5), WRITTEN)
    return abs(left - right) > near * max(abs(left), abs(right))


def _signed(unlike: Unlike, side: int) -> float:
    value = number((unlike.reference, unlike.candidate)[side]) or 0.0
    return -value if unlike.operation == "stablehlo.subtract" else value


def _power(unlike: Unlike, side: int) -> float:
    """Returns the logarithm of a factor."""
    value = abs(number((unlike.reference, unlike.candidate)[side]) or 1.0)
    return -math.log(value) if unlike.operation == "stablehlo.divide" else math.log(value)
