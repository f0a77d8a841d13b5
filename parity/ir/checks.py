"""Operations that check for numbers that are not finite, and programs whose checks find none."""

import collections
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.ir.jaxprs import MOVES, bind_placed, equations

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Unchecked:
    """A hook for `retraced`: each check for numbers that are not finite sees zeros in their place."""

    def __init__(self):
        self._infinite: set[Any] = set()

    def __call__(self, equation: Any, inputs: list[Any]) -> list[Any]:
        if self.kind(equation):
            kept = map(self._is_infinite, equation.invars)
            inputs = [
                each if infinite else jnp.where(jnp.isfinite(each), each, 0)
                for each, infinite in zip(inputs, kept, strict=True)
            ]
        return bind_placed(equation, inputs)

    def kind(self, equation: Any) -> str:
        """Returns what an equation checks for: ``finite``, ``nan``, ``infinite``, or nothing. They come in order."""
        infinite, name = [*map(self._is_infinite, equation.invars)], equation.primitive.name
        if name in MOVES and infinite[0]:
            self._infinite.add(equation.outvars[0])
        if name == "is_finite":
            return "finite"
        if name not in COMPARISONS:
            return ""
        return "nan" if equation.invars[0] is equation.invars[1] else "infinite" if any(infinite) else ""

    def _is_infinite(self, operand: Any) -> bool:
        """True if an operand is always infinite."""
        if not isinstance(operand, core.Literal):
            return operand in self._infinite
        return np.ndim(operand.val) == 0 and bool(np.abs(operand.val) == np.inf)


def count_checks(jaxpr: Any) -> collections.Counter[str]:
    """Returns the number of checks for numbers that are not finite, by kind."""
    found = collections.Counter(map(Unchecked().kind, equations(jaxpr)))
    del found[""]
    return found
