"""What is run as a whole, such as a function that each device runs on its part: where two of them begin to differ."""

import itertools
from typing import Any

from jax.extend import core

from parity.ir.jaxprs import bodies, opened

__all__ = ["first_unlike"]

PLAIN = (bool, int, float, str, tuple, type(None))


def first_unlike(one: Any, other: Any) -> tuple[Any, Any] | None:
    """Returns the first two operations inside two operations that are not alike; None where all are.

    Args:
        one, other: equations; either of the result is None where that side has nothing more.
    """
    for ours, theirs in zip(bodies(one), bodies(other), strict=False):
        numbers: tuple[dict[Any, int], dict[Any, int]] = {}, {}
        for known, body in zip(numbers, (ours, theirs), strict=True):
            jaxpr = opened(body)
            known.update(zip((*jaxpr.constvars, *jaxpr.invars), itertools.count()))
        pairs = itertools.zip_longest(opened(ours).eqns, opened(theirs).eqns)
        for left, right in pairs:
            if left is None or right is None or _words(left, numbers[0]) != _words(right, numbers[1]):
                return left, right
            if (deeper := first_unlike(left, right)) is not None:
                return deeper
            for known, each in zip(numbers, (left, right), strict=True):
                known.update({out: len(known) + at for at, out in enumerate(each.outvars)})
    return None


def _words(equation: Any, numbers: dict[Any, int]) -> tuple:
    """Returns what an operation is and takes, whatever its variables are called."""
    taken = [
        str(each.val) if isinstance(each, core.Literal) else numbers.get(each) for each in equation.invars
    ]
    params = {name: str(value) for name, value in equation.params.items() if isinstance(value, PLAIN)}
    return equation.primitive.name, taken, [str(out.aval) for out in equation.outvars], params
