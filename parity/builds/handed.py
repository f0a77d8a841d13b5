"""Which results of a traced program are arguments that it only hands on, through calls and scans."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

from parity.ir.jax_internals import scan_split

__all__ = ["handed_on"]


def handed_on(function: Callable[..., Any], *arguments: Any) -> list[int | None]:
    """Returns of each result the number of the argument that it is; None for what is computed.

    Args:
        function: of trees.
        *arguments: trees, abstract or not; they are numbered leaf by leaf.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    numbers = {variable: number for number, variable in enumerate(jaxpr.invars)}
    return [
        None if isinstance(out, core.Literal) else numbers.get(_origin(jaxpr, out)) for out in jaxpr.outvars
    ]


def _origin(jaxpr: Any, variable: Any) -> Any:
    """Returns the variable that a value has been since, or itself."""
    makers = {out: equation for equation in jaxpr.eqns for out in equation.outvars}
    while (equation := makers.get(variable)) is not None:
        operand = _through(equation, equation.outvars.index(variable))
        if operand is None or isinstance(operand, core.Literal):
            break
        variable = operand
    return variable


def _through(equation: Any, result: int) -> Any:
    """Returns the operand that a call or scan returns as one of its results; None if it computes it."""
    bodies = list(core.jaxprs_in_params(equation.params))
    if len(bodies) != 1:
        return None
    body = getattr(bodies[0], "jaxpr", bodies[0])
    if len(body.invars) != len(equation.invars) or len(body.outvars) != len(equation.outvars):
        return None
    inner = body.outvars[result]
    places = {argument: place for place, argument in enumerate(body.invars)}
    number = None if isinstance(inner, core.Literal) else places.get(_origin(body, inner))
    if number is None:
        return None
    return equation.invars[number] if _keeps(equation, number, result) else None


def _keeps(equation: Any, operand: int, result: int) -> bool:
    """Whether what goes from operand to result in a body does so in the whole: turn by turn in a scan."""
    if equation.primitive.name != "scan":
        return True
    constants, carries = scan_split(equation)
    if result < carries:
        return operand == constants + result
    return operand >= constants + carries
