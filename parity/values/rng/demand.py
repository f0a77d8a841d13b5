"""The small part of a traced program that must be computed to know the keys of its random draws."""

import functools
import heapq
from collections.abc import Iterable
from typing import Any

from jax.extend import core

from parity.ir.jax_internals import scan_split
from parity.ir.jaxprs import Place, all_bodies, is_call, opened, variables

DRAWS = frozenset({"random_bits", "random_gamma"})


@functools.lru_cache(maxsize=4_096)
def draws_within(jaxpr: Any) -> tuple[int, ...]:
    """Returns the indices of the equations of a program that draw, at any depth."""
    return tuple(
        index
        for index, (equation, inner) in enumerate(zip(jaxpr.eqns, all_bodies(jaxpr), strict=True))
        if equation.primitive.name in DRAWS or any(draws_within(opened(body)) for body in inner)
    )


@functools.lru_cache(maxsize=512)
def _producers(jaxpr: Any, drawn: bool, inside: bool) -> dict[Any, int]:
    """Returns the index of the equation that makes each variable: a search follows only the needed ones.

    If ``drawn``, only of variables that depend on a draw or, in a body ``inside`` a program, on an argument.
    """
    draws, known = set(draws_within(jaxpr)), set(jaxpr.invars if inside else ())
    found: dict[Any, int] = {}
    for index, equation in enumerate(jaxpr.eqns):
        if not drawn or index in draws or not known.isdisjoint(variables(equation.invars)):
            known.update(equation.outvars)
            found.update(dict.fromkeys(equation.outvars, index))
    return found


class Demand:
    """The equations, and their outputs, on which some outputs and all draws of a program depend.

    Args:
        wanted: positions of outputs that are to be computed.
        all_draws: True to include the keys of all draws. If False, a draw is kept only if ``wanted`` depends on it,
            like any other operation.
        drawn: True to follow only values that depend on a draw: `draws` is complete, the other attributes are not.

    Attributes:
        kept: the needed outputs of each needed equation.
        draws: the equations among them that draw.
        inputs: the needed inputs.
    """

    def __init__(
        self, jaxpr: Any, wanted: Iterable[int] = (), *, all_draws: bool = True, drawn: bool = False
    ):
        self.kept: dict[Place, set[int]] = {}
        self.draws: set[Place] = set()
        self._all_draws, self._drawn = all_draws, drawn
        self.inputs = self._of(opened(jaxpr), set(wanted), ())

    def _of(self, jaxpr: Any, wanted: set[int], at: Place) -> set[int]:
        """Returns the inputs of ``jaxpr`` that its outputs ``wanted`` need."""
        live = set(variables([jaxpr.outvars[index] for index in wanted]))
        producers = _producers(jaxpr, self._drawn, bool(at))
        found = {producers[variable] for variable in live if variable in producers}
        if self._all_draws:
            found.update(draws_within(jaxpr))
        pending, inside = [-index for index in found], all_bodies(jaxpr)
        heapq.heapify(pending)
        while pending:  # the last equation first
            index = -heapq.heappop(pending)
            equation, place = jaxpr.eqns[index], (*at, index)
            outputs = {number for number, out in enumerate(equation.outvars) if out in live}
            self.kept[place] = self.kept.get(place, set()) | outputs
            if equation.primitive.name in DRAWS:
                self.draws.add(place)
            taken = equation.invars
            if inner := [opened(body) for body in inside[index]]:
                taken = [taken[number] for number in self._inputs(equation, inner, outputs, place)]
            for variable in taken:
                if isinstance(variable, core.Literal) or variable in live:
                    continue
                live.add(variable)
                if (producer := producers.get(variable)) is not None and producer not in found:
                    found.add(producer)
                    heapq.heappush(pending, -producer)
        return {index for index, variable in enumerate(jaxpr.invars) if variable in live}

    def _inputs(self, equation: Any, inner: list[Any], outputs: set[int], place: Place) -> set[int]:
        name = equation.primitive.name
        if name == "scan":
            return self._scan(equation, inner[0], outputs, place)
        if name == "cond":
            taken = [self._of(body, outputs, (*place, number)) for number, body in enumerate(inner)]
            return {0} | {number + 1 for numbers in taken for number in numbers}
        if is_call(equation):
            return self._of(inner[0], outputs, place)
        for number, body in enumerate(inner):
            self._of(body, set(range(len(body.outvars))), (*place, number))
        return set(range(len(equation.invars)))

    def _scan(self, equation: Any, body: Any, outputs: set[int], place: Place) -> set[int]:
        """Returns the needed inputs of a scan.

        A needed carry is an output of the previous iteration, so the search continues to a fixed point.
        """
        constants, carries = scan_split(equation)
        wanted: set[int] = set(outputs)
        while True:
            taken = self._of(body, wanted, place)
            carried = {number - constants for number in taken if constants <= number < constants + carries}
            if carried <= wanted:
                return taken | {constants + number for number in wanted if number < carries}
            wanted |= carried
