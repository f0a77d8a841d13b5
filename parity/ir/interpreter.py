"""Evaluates a traced program equation by equation: calls opened, loops iteration by iteration.

One interpreter serves every analysis of a program's behaviour. A subclass defines the values (an array, an array with
its history, or nothing) and evaluates the equations. This class follows calls, branches, scans and loops.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from parity.ir.jax_internals import is_transposed, scan_split
from parity.ir.jaxprs import LAYOUT_ONLY, bodies, is_call, opened, variables


class Position(NamedTuple):
    """A place in the execution of a program.

    Args:
        place: index of the equation in the program, then in its body, and so on; the same in all iterations.
        calls: calls, branches and loops around it, whose bodies JAX traces without their callers, outermost first.
        iterations: loops around it, each with the index of the iteration, outermost first.
        backward: True in the backward pass.
        conditions: values of the branches and loop conditions around it, outermost first.
    """

    place: tuple[int, ...] = ()
    calls: tuple[Any, ...] = ()
    iterations: tuple[tuple[Any, int], ...] = ()
    backward: bool = False
    conditions: tuple[Any, ...] = ()


class Interpreter:
    """Follows the control flow of a program over values of any kind; a subclass defines `operation`, or `intercept`."""

    def constant(self, value: Any) -> Any:
        """Returns the value of a literal or of an array that the program closes over."""
        return value

    def operation(self, equation: Any, inputs: list[Any], here: Position) -> Sequence[Any]:
        """Returns the results of an equation that is neither a call nor control flow."""
        raise NotImplementedError

    def skips(self, place: tuple[int, ...]) -> bool:
        """True if the equation at a place need not be evaluated; its results are None then."""
        return False

    def intercept(self, equation: Any, inputs: list[Any], here: Position) -> Sequence[Any] | None:
        """Returns the results of an equation whose body is not followed; None to follow it."""
        return None

    def concrete(self, value: Any) -> Any:
        """Returns the number behind a value that decides a branch or a loop."""
        return value

    def condition(self, value: Any) -> Any:
        """Returns the entry of `Position.conditions` for a value that decides a branch or a loop."""
        return value

    def slice(self, value: Any, index: int, here: Position) -> Any:
        """Returns the slice of a scanned array for one iteration."""
        raise NotImplementedError

    def stack(self, values: list[Any], out: Any, here: Position) -> Any:
        """Returns the results of all iterations as one array; ``out`` is its variable."""
        raise NotImplementedError

    def branched(self, outputs: list[Any], decided: Any, equation: Any, here: Position) -> list[Any]:
        """Returns the results of a branch, given the value that selected it."""
        return outputs

    def continues(self, decided: Any, equation: Any, here: Position) -> None:
        """Records the value that decides whether a loop continues."""

    def selected(self, decided: Any, new: Any, old: Any, here: Position) -> Any:
        """Returns the new value where the loops of a batch continue, else the old one."""
        raise NotImplementedError

    def body(self, closed: Any, arguments: Sequence[Any], around: Position) -> list[Any]:
        """Returns the results of a program, closed or not, or of the body of the equation ``around`` it."""
        jaxpr = opened(closed)
        values: dict[Any, Any] = {
            variable: self.constant(array)
            for variable, array in zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=False)
        }
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(variable: Any) -> Any:
            return self.constant(variable.val) if isinstance(variable, core.Literal) else values.get(variable)

        for at, (equation, done) in enumerate(zip(jaxpr.eqns, _last_uses(jaxpr), strict=True)):
            place = (*around.place, at)
            if not self.skips(place):
                backward = around.backward or is_transposed(equation)
                here = around._replace(place=place, backward=backward)
                outputs = self._equation(equation, [read(variable) for variable in equation.invars], here)
                values.update(zip(equation.outvars, outputs, strict=True))
            for variable in done:
                values.pop(variable, None)
        return [read(variable) for variable in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Any], here: Position) -> Sequence[Any]:
        if (outputs := self.intercept(equation, inputs, here)) is not None:
            return outputs
        name, inner = equation.primitive.name, bodies(equation)
        inside = here._replace(calls=(*here.calls, equation)) if inner else here
        if name == "scan":
            return self._scan(equation, inputs, inside)
        if name == "while":
            return self._while(equation, inputs, inside)
        if name == "cond":
            chosen = min(max(int(self.concrete(inputs[0])), 0), len(inner) - 1)
            within = inside._replace(
                place=(*here.place, chosen),
                conditions=(*here.conditions, self.condition(inputs[0])),
            )
            return self.branched(self.body(inner[chosen], inputs[1:], within), inputs[0], equation, here)
        if is_call(equation):
            return self.body(inner[0], inputs, inside)
        return inputs if name in LAYOUT_ONLY else self.operation(equation, inputs, here)

    def _scan(self, equation: Any, inputs: list[Any], here: Position) -> list[Any]:
        (body,), (constants, carries) = bodies(equation), scan_split(equation)
        length, reverse = equation.params["length"], equation.params["reverse"]
        fixed, carry = inputs[:constants], inputs[constants : constants + carries]
        scanned = inputs[constants + carries :]
        rows: list[list[Any]] = [[] for _ in equation.outvars[carries:]]
        for index in reversed(range(length)) if reverse else range(length):
            around = here._replace(iterations=(*here.iterations, (equation, index)))
            slices = [self.slice(value, index, around) for value in scanned]
            outputs = self.body(body, [*fixed, *carry, *slices], around)
            carry = outputs[:carries]
            for row, value in zip(rows, outputs[carries:], strict=True):
                row.append(value)
        stacked = [
            self.stack(row[::-1] if reverse else row, out, here)
            for row, out in zip(rows, equation.outvars[carries:], strict=True)
        ]
        return [*carry, *stacked]

    def _while(self, equation: Any, inputs: list[Any], here: Position) -> list[Any]:
        condition, body = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
        order = [opened(one) for one in bodies(equation)]
        places = [(*here.place, order.index(opened(one))) for one in (condition, body)]
        first, second = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        fixed = inputs[:first], inputs[first : first + second]
        carry, index = inputs[first + second :], 0
        while True:
            around = here._replace(iterations=(*here.iterations, (equation, index)))
            (decided,) = self.body(condition, [*fixed[0], *carry], around._replace(place=places[0]))
            self.continues(decided, equation, around)
            if not np.any(self.concrete(decided)):
                return carry
            within = around._replace(place=places[1], conditions=(*here.conditions, self.condition(decided)))
            outputs = self.body(body, [*fixed[1], *carry], within)
            pairs = zip(outputs, carry, strict=True)
            batch = np.ndim(self.concrete(decided)) > 0  # a vmap of loops
            carry = [self.selected(decided, *pair, within) for pair in pairs] if batch else outputs
            index += 1


def along(mask: Any, array: Any) -> Any:
    """Returns a mask with further axes of size one, to select entries of an array along its first axes."""
    return mask.reshape(*mask.shape, *(1,) * (np.ndim(array) - mask.ndim))


@functools.lru_cache(maxsize=4_096)
def _last_uses(jaxpr: Any) -> tuple[tuple[Any, ...], ...]:
    """Returns for each equation of a program the variables that are not read after it and are no results."""
    results = set(variables(jaxpr.outvars))
    last = {out: at for at, equation in enumerate(jaxpr.eqns) for out in equation.outvars}
    last |= {read: at for at, equation in enumerate(jaxpr.eqns) for read in variables(equation.invars)}
    done: list[list[Any]] = [[] for _ in jaxpr.eqns]
    for variable, at in last.items():
        if variable not in results:
            done[at].append(variable)
    return tuple(map(tuple, done))
