"""Small constants that keep programs away from zero, such as the epsilon of a norm: runs rarely show another one."""

import collections
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.ir.jaxprs import CALLS, all_bodies, equations, opened
from parity.ir.location import equation_source

__all__ = ["changed_epsilons"]

LARGEST = 1e-3
"""Larger constants change what a run computes."""
ADDING = {"add": "add", "sub": "add", "max": "max"}
MOVES = frozenset({"broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "copy"})
AT_ZERO = frozenset({"div", "rsqrt", "sqrt", "log", "pow", "integer_pow"})
"""Operations whose results near zero depend on a small constant."""

Use = tuple[str, float]
Places = Mapping[Use, list[str]]


def changed_epsilons(reference: Any, candidate: Any) -> tuple[str, str] | None:
    """Returns the small constants that each of two programs has more often, with places, as text; None if none differ.

    They differ if both sides have one more often than the other, and one side lacks one: a program in a loop has
    fewer of all, a recomputed one more of some. A constant and its square are one: ``max(sqrt(x), e)``.

    Args:
        reference, candidate: jaxprs, closed or not.
    """
    sides = [_small_constants(opened(jaxpr), ()) for jaxpr in (reference, candidate)]
    more = [
        [use for use in own if len(own[use]) > len(other.get(use, ()))] for own, other in (sides, sides[::-1])
    ]
    lacking = [use for side, uses in enumerate(more) for use in uses if use not in sides[1 - side]]
    sizes = _summed_sizes(reference) | _summed_sizes(candidate)
    if (
        not all(more)
        or not lacking
        or any(_are_one(one, other, sizes) for one, other in itertools.product(*more))
    ):
        return None
    texts = [
        ", ".join(_described(use, own[use], other.get(use, ())) for use in uses)
        for uses, (own, other) in zip(more, (sides, sides[::-1]), strict=True)
    ]
    return texts[0], texts[1]


def _are_one(one: Use, other: Use, sizes: Iterable[int]) -> bool:
    """True if a constant is the square of the other, or that of a sum instead of a mean."""
    small, large = sorted((one[1], other[1]))
    return any(
        math.isclose(small, each, rel_tol=0.05) for each in (large**2, *(large / size for size in sizes))
    )


def _summed_sizes(jaxpr: Any) -> set[int]:
    """Returns the numbers of entries that the program adds up at once."""
    return {
        math.prod(equation.invars[0].aval.shape[axis] for axis in equation.params["axes"])
        for equation in equations(jaxpr)
        if equation.primitive.name == "reduce_sum"
    }


def _described(use: Use, places: Sequence[str], others: Sequence[str]) -> str:
    count = f"{len(places)} times" if len(places) > 1 else "once"
    # If the other side has it too, nobody knows which of them it is.
    return f"{use[0]} {use[1]:g}, {count} against {len(others)}" + ("" if others else f", at {places[0]}")


@functools.lru_cache(maxsize=1_024)
def _small_constants(jaxpr: Any, known: tuple[float | None, ...]) -> Places:
    """Returns the places of each use of a small constant; constants are equal if two digits are.

    Args:
        jaxpr: not closed.
        known: the arguments that are constants; None for others.
    """
    numbers = {var: value for var, value in zip(jaxpr.invars, known, strict=False) if value is not None}
    found: dict[Use, list[str]] = collections.defaultdict(list)
    for equation, inner in zip(jaxpr.eqns, all_bodies(jaxpr), strict=True):
        values = [_number(operand, numbers) for operand in equation.invars]
        if equation.primitive.name in MOVES and values[0] is not None:
            numbers[equation.outvars[0]] = values[0]
        for value in values if equation.primitive.name in ADDING else ():
            if value and abs(value) <= LARGEST and _meets_zero(equation.outvars[0], jaxpr):
                use = ADDING[equation.primitive.name], float(f"{abs(value):.1e}")
                found[use].append(equation_source(equation).own_place)
        for body in map(opened, inner):
            passed = equation.primitive.name in CALLS and len(values) == len(body.invars)
            for use, places in _small_constants(body, tuple(values) if passed else ()).items():
                found[use] += places
    return found


def _number(operand: Any, numbers: Mapping[Any, float]) -> float | None:
    """Returns the float that an operand always is; None if it is no such scalar."""
    if not isinstance(operand, core.Literal):
        return numbers.get(operand)
    scalar = np.asarray(operand.val)
    return float(scalar) if not scalar.shape and jnp.issubdtype(scalar.dtype, jnp.floating) else None


@functools.lru_cache(maxsize=1_024)
def _readers(jaxpr: Any) -> Mapping[Any, list[Any]]:
    """Returns the equations that read each value."""
    found = collections.defaultdict(list)
    for equation in jaxpr.eqns:
        for operand in equation.invars:
            if not isinstance(operand, core.Literal):
                found[operand].append(equation)
    return found


def _meets_zero(value: Any, jaxpr: Any) -> bool:
    """True if a root, logarithm, power or division reads a value, or a caller might."""
    return value in jaxpr.outvars or any(
        equation.primitive.name in AT_ZERO | CALLS
        or (equation.primitive.name in MOVES and _meets_zero(equation.outvars[0], jaxpr))
        for equation in _readers(jaxpr).get(value, ())
    )
