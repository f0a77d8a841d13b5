"""Order in which a traced program first uses its arguments."""

from typing import Any

from jax.extend import core

from parity.ir.jaxprs import bodies, opened

__all__ = ["first_uses"]

Place = tuple[int, ...]


def first_uses(jaxpr: Any) -> dict[int, Place]:
    """Returns ``{argument: place}`` of the first operation that uses each argument.

    A place is the position of an operation in the program, then of the operation inside it, and so on. Operations
    with a body, such as calls, are entered.

    Args:
        jaxpr: a closed or open jaxpr.
    """
    inner = opened(jaxpr)
    numbers = {variable: number for number, variable in enumerate(inner.invars)}
    found: dict[int, Place] = {}
    for index, equation in enumerate(inner.eqns):
        used = {
            position: numbers[variable]
            for position, variable in enumerate(equation.invars)
            if not isinstance(variable, core.Literal) and variable in numbers
        }
        fresh = {position: number for position, number in used.items() if number not in found}
        if not fresh:
            continue
        inside = _inside(equation)
        for position, number in fresh.items():
            place = (index, *inside.get(position, ())) if inside is not None else (index,)
            if inside is None or position in inside:
                found[number] = min(found.get(number, place), place)
    return found


def _inside(equation: Any) -> dict[int, Place] | None:
    """Returns the place in an equation's body that first uses each operand; None for an equation without a body."""
    inner = bodies(equation)
    if not inner:
        return None
    count = len(equation.invars)
    places: dict[int, Place] = {}
    for body in inner:
        skipped = count - len(opened(body).invars)  # a cond's index, a while's other constants
        for number, place in first_uses(body).items():
            position = number + max(skipped, 0)
            places[position] = min(places.get(position, place), place)
    return places
