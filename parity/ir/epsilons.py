"""Small constants that programs add, such as the epsilon of a norm: numbers at hand rarely show another one."""

import collections
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from parity.ir.jaxprs import equations
from parity.ir.location import equation_source

__all__ = ["changed_epsilons"]

LARGEST = 1e-3
"""Larger constants change what a run computes."""
ADDING = frozenset({"add", "sub", "max"})


def changed_epsilons(reference: Any, candidate: Any) -> tuple[str, str] | None:
    """Returns the small constants that each of two programs adds more often, with the places, as text.

    Returns None unless both have one: a program in a loop, or in another form, has fewer or more of all.

    Args:
        reference, candidate: jaxprs, closed or not.
    """
    sides = _small_constants(reference), _small_constants(candidate)
    texts = []
    for own, other in (sides, sides[::-1]):
        more = [(key, places) for key, places in own.items() if len(places) > len(other[key])]
        texts.append(
            ", ".join(
                f"{' '.join(key)}, {_times(len(places))} against {len(other[key])}"
                + ("" if other[key] else f", at {places[0]}")  # else nobody knows which of them it is
                for key, places in more
            )
        )
    return (texts[0], texts[1]) if all(texts) else None


def _times(count: int) -> str:
    return f"{count} times" if count > 1 else "once"


def _small_constants(jaxpr: Any) -> dict[tuple[str, str], list[str]]:
    """Returns ``{(operation, constant): places}``; constants count as equal if two digits are."""
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for equation in equations(jaxpr):
        if equation.primitive.name in ADDING and jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating):
            for operand in equation.invars:
                value = operand.val if isinstance(operand, core.Literal) else 0
                if 0 < abs(value) <= LARGEST:
                    found[equation.primitive.name, f"{value:.1e}"].append(equation_source(equation).own_place)
    return found
