"""Settings of a library's functions, such as an optimizer's: the constants that its lines read."""

import collections
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.ir.jaxprs import distinct_equations
from parity.ir.location import Frame, SourceLocation, equation_source

WRITTEN = 1e-5
"""Relative tolerance within which two settings are one."""


def changed_setting(reference: Any, candidate: Any) -> tuple[str, SourceLocation, SourceLocation] | None:
    """Returns the first line of a library that reads another constant on each side; None if there is none.

    Its operation is found where a proof ends before it, such as in the branch that updates every second step.

    Args:
        reference, candidate: jaxprs, closed or not.

    Returns:
        The operation with both constants, and the places that run it.
    """
    sides = _constants(reference), _constants(candidate)
    for line in (line for line in sides[0] if line in sides[1]):
        pairs = zip(sides, sides[::-1], strict=True)
        left, right = (_lacking(own[line], other[line]) for own, other in pairs)
        if left and right:
            places = sides[0][line][left[0]], sides[1][line][right[0]]
            return f"{line[1]} (constant: {left[0]:.6g} against {right[0]:.6g})", *places
    return None


def _constants(jaxpr: Any) -> Mapping[tuple[Frame, str], dict[float, SourceLocation]]:
    """Returns the numbers that each operation on each line of a library reads, with the first place that does."""
    found = collections.defaultdict(dict)
    for equation, calls in distinct_equations(jaxpr):
        literals = [one.val for one in equation.invars if isinstance(one, core.Literal)]
        numbers = [float(one) for one in literals if _is_real(one)]
        source = equation_source(equation, calls) if numbers else SourceLocation()
        for number in numbers if source.own else ():
            for line in source.library[:1]:
                operation = equation.params.get("name", equation.primitive.name)  # `clip` is a call
                found[line, operation].setdefault(number, source)
    return found


def _lacking(own: Mapping[float, Any], other: Mapping[float, Any]) -> list[float]:
    return [one for one in own if not any(math.isclose(one, each, rel_tol=WRITTEN) for each in other)]


def _is_real(value: Any) -> bool:
    kind = jnp.result_type(value)
    is_number = jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)
    return np.ndim(value) == 0 and is_number
