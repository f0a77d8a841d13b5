"""Small constants that keep programs away from zero, such as the epsilon of a norm: runs rarely show another one."""

import collections
import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.ir.jaxprs import CALLS, MOVES, all_bodies, bodies, distinct_equations, opened
from parity.ir.location import equation_source

LARGEST = 1e-3
"""Larger constants change what a run computes."""
ADDING = {"add": "add", "sub": "add", "max": "max", "select_n": "max"}
ROOTS = frozenset({"rsqrt", "sqrt", "log", "pow", "integer_pow"})
SQUARE_ROOTS = frozenset({"rsqrt", "sqrt"})
AT_ZERO = ROOTS | {"div"}
"""Operations whose results near zero depend on a small constant; a divisor may be far from zero, as in a softmax."""

Use = tuple[str, float]
NEVER: collections.Counter[str] = collections.Counter()
Found = Mapping[Use, collections.Counter[str]]
"""Number of uses of each constant by place."""


def changed_epsilons(reference: Any, candidate: Any) -> tuple[str, str] | None:
    """Returns the small constants that each of two programs has more often, with places, as text; None if none differ.

    They differ if both sides have one more often than the other, and one side lacks one: a program in a loop has
    fewer of all, a recomputed one more of some. If only one side has more, they differ if the number is nowhere on the
    other side, and is no part of a divisor.
    A constant and its square are one, unless a square root reads both sums: ``max(sqrt(x), e)``.

    Args:
        reference, candidate: jaxprs, closed or not.
    """
    programs = reference, candidate
    sides = [_small_constants(jaxpr, (), AT_ZERO) for jaxpr in programs]
    pairs = tuple(zip(sides, sides[::-1], strict=True))
    more = [
        {use: found for use, found in own.items() if found.total() > other.get(use, NEVER).total()}
        for own, other in pairs
    ]
    lacking = [
        [use for use in uses if use not in other] for uses, (_, other) in zip(more, pairs, strict=True)
    ]
    sizes = set().union(*map(_summed_sizes, programs))
    if all(more):
        numbers = [{number for _, number in uses} for uses in more]
        before_roots = all(
            use[0] == "add" and use in _small_constants(own, (), SQUARE_ROOTS)
            for own, uses in zip(programs, more, strict=True)
            for use in uses
        )
        changed = any(lacking) and not _are_related(numbers[0], numbers[1], sizes, squared=not before_roots)
    else:
        changed = any(
            use in _small_constants(own, (), ROOTS)
            and not _are_related({use[1]}, _small_numbers(other), sizes | {1})
            for uses, own, other in zip(lacking, programs, programs[::-1], strict=True)
            for use in uses
        )
    if not changed:
        return None
    texts = [
        ", ".join(_described(use, found, other.get(use, NEVER).total()) for use, found in uses.items())
        or "no other constant"
        for uses, (_, other) in zip(more, pairs, strict=True)
    ]
    return texts[0], texts[1]


def _are_related(
    some: Iterable[float], others: Iterable[float], sizes: Iterable[int], *, squared: bool = True
) -> bool:
    """True if a constant is that of a sum instead of a mean, or the square of another."""
    return any(
        math.isclose(small, each, rel_tol=0.05)
        for small, large in map(sorted, itertools.product(some, others))
        for each in (*[large**2] * squared, *(large / size for size in sizes))
    )


def _small_numbers(jaxpr: Any) -> set[float]:
    """Returns the small floats that a program holds, or that any of its operations reads."""
    found = [equation for equation, _ in distinct_equations(jaxpr)]
    read = [_number(operand, {}) for equation in found for operand in equation.invars]
    inside = [body for equation in found for body in bodies(equation)]
    held = [number for body in (jaxpr, *inside) for number in _constants(body).values()]
    return set(filter(None, map(_small, read + held)))


def _summed_sizes(jaxpr: Any) -> set[int]:
    """Returns the numbers of entries that a program adds up at once."""
    sums = (one for one, _ in distinct_equations(jaxpr) if one.primitive.name == "reduce_sum")
    return {math.prod(one.invars[0].aval.shape[axis] for axis in one.params["axes"]) for one in sums}


def _described(use: Use, found: collections.Counter[str], other: int) -> str:
    count = found.total()
    times = "once" if count == 1 else f"{count} times"
    # Of several equal constants the one that changed is unknown, unless only one place has so many.
    places = [place for place, uses in found.items() if not other or uses >= count - other]
    known = f", at {places[0]}" if not other or len(places) == 1 else ""
    there = f" (the other side {other})" if other else ""
    return f"{use[0]} {use[1]:g} {times}{there}{known}"


@functools.lru_cache(maxsize=1_024)
def _small_constants(closed: Any, known: tuple[float | None, ...], at: frozenset[str]) -> Found:
    """Returns the uses of small constants in a jaxpr; constants are equal if two digits are.

    ``known`` are the arguments that are constants, ``at`` the operations that read a sum or maximum with the constant.
    """
    jaxpr = opened(closed)
    arguments = zip(jaxpr.invars, known, strict=False)
    numbers = _constants(closed) | {var: value for var, value in arguments if value is not None}
    found: dict[Use, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for equation, inner in zip(jaxpr.eqns, all_bodies(jaxpr), strict=True):
        values = [_number(operand, numbers) for operand in equation.invars]
        if equation.primitive.name in MOVES and values[0] is not None:
            numbers[equation.outvars[0]] = values[0]
        for small in filter(None, map(_small, values)) if equation.primitive.name in ADDING else ():
            if _meets_zero(equation.outvars[0], jaxpr, at):
                source = equation_source(equation)
                found[ADDING[equation.primitive.name], small][f"{source.own_place}{source.maker}"] += 1
        for body in inner:
            passed = equation.primitive.name in CALLS and len(values) == len(opened(body).invars)
            for use, places in _small_constants(body, tuple(values) if passed else (), at).items():
                found[use].update(places)
    return found


def _constants(jaxpr: Any) -> dict[Any, float]:
    """Returns the float scalars that a jaxpr is closed over."""
    values = zip(opened(jaxpr).constvars, getattr(jaxpr, "consts", ()), strict=False)
    return {var: number for var, value in values if (number := _scalar(value)) is not None}


def _number(operand: Any, numbers: Mapping[Any, float]) -> float | None:
    """Returns the float that an operand always is; None if it is no such scalar."""
    return _scalar(operand.val) if isinstance(operand, core.Literal) else numbers.get(operand)


def _scalar(value: Any) -> float | None:
    is_float = np.ndim(value) == 0 and jnp.issubdtype(jnp.result_type(value), jnp.floating)
    return float(value) if is_float else None


def _small(number: float | None) -> float:
    """Returns the size of a small number with two digits, which its type does not change; zero for others."""
    size = float(f"{abs(number or 0):.1e}")
    return size if size <= LARGEST else 0.0


@functools.lru_cache(maxsize=1_024)
def _readers(jaxpr: Any) -> Mapping[Any, list[Any]]:
    """Returns the equations that read each value."""
    found = collections.defaultdict(list)
    for equation in jaxpr.eqns:
        for operand in equation.invars:
            if not isinstance(operand, core.Literal):
                found[operand].append(equation)
    return found


def _operation(equation: Any) -> str:
    """Returns the name of an operation; ``div`` for a negative power, which is in the gradient of a divisor."""
    name = equation.primitive.name
    return "div" if name == "integer_pow" and equation.params["y"] < 0 else name


def _meets_zero(value: Any, jaxpr: Any, at: frozenset[str]) -> bool:
    """True if one of the operations reads a value, or a caller might; those of square roots must."""
    unknown = at is not SQUARE_ROOTS
    return (unknown and value in jaxpr.outvars) or any(
        _operation(equation) in (at | CALLS if unknown else at)
        or (equation.primitive.name in MOVES and _meets_zero(equation.outvars[0], jaxpr, at))
        for equation in _readers(jaxpr).get(value, ())
    )
