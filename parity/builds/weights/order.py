"""In which order a traced program uses its arguments for the first time."""

from typing import Any

from jax.extend import core

from parity.ir.jaxprs import bodies, opened

__all__ = ["first_uses"]

Place = tuple[int, ...]


def first_uses(jaxpr: Any) -> dict[int, Place]:
    """Returns ``{argument: place}`` of the first operation that uses each argument.

    A place is the position of an operation in the program, then of the one inside it, and so on. What only
    hands an argument on, such as a call, is looked into.

    Args:
        jaxpr: a closed traced program, or an open one.
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
    """Returns where the body of an equation first uses its operands; None for an equation without one."""
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
