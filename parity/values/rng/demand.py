"""What a traced program must compute so that the keys of its random draws are known: little of it."""

import functools
from collections.abc import Iterable
from typing import Any

from jax.extend import core

from parity.ir.jax_internals import scan_split
from parity.ir.jaxprs import CALLS, bodies, opened

__all__ = ["DRAWS", "Demand", "Place", "draws_within"]

DRAWS = frozenset({"random_bits", "random_gamma"})
Place = tuple[int, ...]
"""Position of an equation: index in the program, in its body, in the body of that, ..."""


@functools.lru_cache(maxsize=4_096)
def draws_within(jaxpr: Any) -> bool:
    """Says whether a program draws, at any depth."""
    return any(_draws(equation) for equation in jaxpr.eqns)


def _draws(equation: Any) -> bool:
    return equation.primitive.name in DRAWS or any(draws_within(opened(body)) for body in bodies(equation))


class Demand:
    """Which equations, and which of their outputs, some outputs and all draws of a program depend on.

    Args:
        jaxpr: the program.
        wanted: positions of outputs that are to be computed.
        all_draws: whether the keys of draws are wanted wherever they are made; otherwise a draw is like any
            other operation, and only those that ``wanted`` depends on are kept.

    Attributes:
        kept: the outputs that are wanted of each equation that is.
        draws: the equations among them that draw.
        inputs: the inputs that are wanted.
    """

    def __init__(self, jaxpr: Any, wanted: Iterable[int] = (), *, all_draws: bool = True):
        self.kept: dict[Place, set[int]] = {}
        self.draws: set[Place] = set()
        self._all_draws = all_draws
        self.inputs = self._of(opened(jaxpr), set(wanted), ())

    def _of(self, jaxpr: Any, wanted: set[int], at: Place) -> set[int]:
        """Returns which inputs of ``jaxpr`` are wanted when ``wanted`` are of its outputs."""
        live = {
            jaxpr.outvars[index] for index in wanted if not isinstance(jaxpr.outvars[index], core.Literal)
        }
        for index in reversed(range(len(jaxpr.eqns))):
            equation, place = jaxpr.eqns[index], (*at, index)
            outputs = {number for number, out in enumerate(equation.outvars) if out in live}
            if not outputs and not (self._all_draws and _draws(equation)):
                continue
            self.kept[place] = self.kept.get(place, set()) | outputs
            if equation.primitive.name in DRAWS:
                self.draws.add(place)
            taken = (equation.invars[number] for number in self._inputs(equation, outputs, place))
            live |= {variable for variable in taken if not isinstance(variable, core.Literal)}
        return {index for index, variable in enumerate(jaxpr.invars) if variable in live}

    def _inputs(self, equation: Any, outputs: set[int], place: Place) -> set[int]:
        inner = [opened(body) for body in bodies(equation)]
        name = equation.primitive.name
        if name == "scan":
            return self._scan(equation, inner[0], outputs, place)
        if name == "cond":
            taken = [self._of(body, outputs, (*place, number)) for number, body in enumerate(inner)]
            return {0} | {number + 1 for numbers in taken for number in numbers}
        if name in CALLS and len(inner) == 1 and len(inner[0].invars) == len(equation.invars):
            return self._of(inner[0], outputs, place)
        for number, body in enumerate(inner):
            self._of(body, set(range(len(body.outvars))), (*place, number))
        return set(range(len(equation.invars)))

    def _scan(self, equation: Any, body: Any, outputs: set[int], place: Place) -> set[int]:
        """A carry that the body needs is an output of the body before it; until nothing is added."""
        constants, carries = scan_split(equation)
        wanted: set[int] = set(outputs)
        while True:
            taken = self._of(body, wanted, place)
            carried = {number - constants for number in taken if constants <= number < constants + carries}
            if carried <= wanted:
                return taken | {constants + number for number in wanted if number < carries}
            wanted |= carried
