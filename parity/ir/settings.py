"""Settings of a library's functions, such as an optimizer's: the constants that its lines read."""

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.ir.jax_internals import live
from parity.ir.jaxprs import distinct_equations, opened
from parity.ir.location import Frame, SourceLocation, equation_source
from parity.ir.makers import library_call, library_makers

WRITTEN = 1e-5
"""Relative tolerance within which two settings are one."""


class Setting(NamedTuple):
    """A setting of a library's function that differs.

    Args:
        where: its operation with both constants.
        reference, candidate: the places that run it.
        alone: True if the user's calls set it, and no other constant may cancel the difference.
    """

    where: str
    reference: SourceLocation
    candidate: SourceLocation
    alone: bool


def changed_setting(reference: Any, candidate: Any) -> Setting | None:
    """Returns the first line of a library that reads another constant on each side; None if there is none.

    Its operation is found where a proof ends before it, such as in the branch that updates every second step.

    Args:
        reference, candidate: jaxprs, closed or not.
    """
    sides = _constants(live(opened(reference))), _constants(live(opened(candidate)))
    found = []
    for line in (line for line in sides[0] if line in sides[1]):
        one, other = (side[line] for side in sides)
        left, right = _lacking(one, other), _lacking(other, one)
        if left and right and len(one) == len(other):  # else they are grouped otherwise
            found.append((line, left, right))
    if not found:
        return None
    line, left, right = found[0]
    (number, place), (second, there) = left[0], right[0]
    rest = [one for side in sides for read in side.values() for one in read if one not in (*left, *right)]
    numbers = {abs(each) for each, _ in rest}
    factors = {each for each in (*numbers, *(1 / each for each in numbers if each)) if each != 1}
    scaled = any(math.isclose(abs(second), each * abs(number), rel_tol=WRITTEN) for each in factors)
    made = [library_call(one.library, {frame.file for frame in one.own}, one.own) for one in (place, there)]
    single = len(found) == len(left) == len(right) == 1 and all(made)
    where = f"{line[1]} (constant: {number:.6g} against {second:.6g})"
    return Setting(where, place, there, single and not scaled)


Read = Sequence[tuple[float, SourceLocation]]
"""Numbers with the places that read them."""


def _constants(jaxpr: Any) -> Mapping[tuple[Frame, str], Read]:
    """Returns the numbers that each operation on each line of a library's closures reads."""
    found = collections.defaultdict(list)
    for equation, calls in distinct_equations(jaxpr):
        literals = [one.val for one in equation.invars if isinstance(one, core.Literal)]
        numbers = [float(one) for one in literals if _is_real(one)]
        source = equation_source(equation, calls) if numbers else SourceLocation()
        if source.own and library_makers(source.library):
            operation = equation.params.get("name", equation.primitive.name)  # `clip` is a call
            found[source.library[0], operation] += [(number, source) for number in numbers]
    return found


def _lacking(own: Read, others: Read) -> Read:
    return [one for one in own if not any(math.isclose(one[0], each, rel_tol=WRITTEN) for each, _ in others)]


def _is_real(value: Any) -> bool:
    kind = jnp.result_type(value)
    is_number = jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)
    return is_number and np.ndim(value) == 0 and bool(np.isfinite(value))
