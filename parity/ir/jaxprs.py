"""Traced programs: walks over their equations, values that are forwarded unchanged, single equations run alone."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core

from parity.ir.jax_internals import scan_split

REMAT = frozenset({"remat2", "checkpoint"})
"""Calls whose equations carry the whole call stack of the caller."""
CALLS = REMAT | {"jit", "custom_jvp_call", "custom_vjp_call", "closed_call", "eval_jaxpr"}
"""Equations that run their one body on their operands; see `is_call`."""
LAYOUT_ONLY = frozenset({"sharding_constraint", "reshard", "optimization_barrier"})
"""Equations that return their operands, possibly placed elsewhere or fenced by a barrier."""
MOVES = LAYOUT_ONLY | {"broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "copy"}
"""Equations whose results are constants if their operands are."""


def opened(jaxpr: Any) -> Any:
    """Returns the jaxpr inside a closed one, or the jaxpr itself."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def bodies(equation: Any) -> list[Any]:
    """Returns the programs inside an equation, still closed over their constants."""
    return list(core.jaxprs_in_params(equation.params))


def is_call(equation: Any) -> bool:
    """True if an equation runs its one body on its operands."""
    inner = bodies(equation) if equation.primitive.name in CALLS else ()
    return len(inner) == 1 and len(opened(inner[0]).invars) == len(equation.invars)


@functools.lru_cache(maxsize=4_096)
def all_bodies(jaxpr: Any) -> tuple[tuple[Any, ...], ...]:
    """Returns the programs inside each equation of a jaxpr."""
    return tuple(tuple(bodies(equation)) for equation in jaxpr.eqns)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the equations of a program, each before those inside it."""
    jaxpr = opened(jaxpr)
    for equation, inner in zip(jaxpr.eqns, all_bodies(jaxpr), strict=True):
        yield equation
        for body in inner:
            yield from equations(body)


def distinct_equations(
    jaxpr: Any, calls: tuple[Any, ...] = (), seen: set[int] | None = None
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yields the equations of a program with those around them; a body that several share is entered once."""
    seen = set() if seen is None else seen
    for equation, inner in zip(opened(jaxpr).eqns, all_bodies(opened(jaxpr)), strict=True):
        yield equation, calls
        for body in inner:
            if id(opened(body)) not in seen:
                seen.add(id(opened(body)))
                yield from distinct_equations(body, (*calls, equation), seen)


def variables(row: Sequence[Any]) -> list[Any]:
    """Returns the operands or results that are not literals."""
    return [variable for variable in row if not isinstance(variable, core.Literal)]


def bind(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """Runs one equation alone, on one device, without its shardings."""
    params = {
        name: None if isinstance(value, jax.sharding.Sharding) else value
        for name, value in equation.params.items()
    }
    return bind_placed(equation.replace(params=params), inputs)


def bind_placed(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """Returns the results of an equation, with its shardings."""
    outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def forwarded_arguments(function: Callable[..., Any], *arguments: Any) -> list[int | None]:
    """Returns for each result of a function of trees the index of the leaf that it forwards; None if it is computed."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    numbers = {variable: number for number, variable in enumerate(jaxpr.invars)}
    return [numbers.get(origin(jaxpr, out)) for out in jaxpr.outvars]


@functools.lru_cache(maxsize=64)
def makers(jaxpr: Any) -> Mapping[Any, Any]:
    """Returns the equation that makes each variable of a program."""
    return {out: equation for equation in jaxpr.eqns for out in equation.outvars}


def origin(jaxpr: Any, variable: Any) -> Any:
    """Returns the variable that calls and scans forward as this one, or itself; None for a literal."""
    made = makers(jaxpr)
    while not isinstance(variable, core.Literal) and (equation := made.get(variable)) is not None:
        operand = _forwarded(equation, equation.outvars.index(variable))
        if operand is None or isinstance(operand, core.Literal):
            return variable
        variable = operand
    return None if isinstance(variable, core.Literal) else variable


def _forwarded(equation: Any, result: int) -> Any:
    """Returns the operand that a call or scan forwards as one of its results; None if the result is computed."""
    inner = bodies(equation)
    if len(inner) != 1:
        return None
    body = opened(inner[0])
    if len(body.invars) != len(equation.invars) or len(body.outvars) != len(equation.outvars):
        return None
    places = {argument: place for place, argument in enumerate(body.invars)}
    number = places.get(origin(body, body.outvars[result]))
    if number is None:
        return None
    return equation.invars[number] if _keeps(equation, number, result) else None


def _keeps(equation: Any, operand: int, result: int) -> bool:
    """True if the equation forwards an operand that its body forwards; a scan must forward it in each iteration."""
    if equation.primitive.name != "scan":
        return True
    constants, carries = scan_split(equation)
    if result < carries:
        return operand == constants + result
    return operand >= constants + carries


Place = tuple[int, ...]
"""Position of an equation: index in the program, in its body, in the body of that, ..."""


def first_uses(jaxpr: Any) -> dict[int, int]:
    """Returns ``{argument: rank}`` in the order in which operations first use the arguments.

    Operations with a body, such as calls, are entered.
    """
    ranks: dict[int, int] = {}

    def walk(body: Any, numbers: dict[Any, int]) -> None:
        for equation, inner in zip(body.eqns, all_bodies(body), strict=True):
            known = (one for one in variables(equation.invars) if one in numbers)
            fresh = {one: numbers[one] for one in known if numbers[one] not in ranks}
            for each in map(opened, inner) if fresh else ():
                skipped = max(0, len(equation.invars) - len(each.invars))  # such as a cond's index
                pairs = zip(equation.invars[skipped:], each.invars, strict=False)
                walk(
                    each,
                    {
                        own: fresh[one]
                        for one, own in pairs
                        if not isinstance(one, core.Literal) and one in fresh
                    },
                )
            for number in () if inner else fresh.values():
                ranks.setdefault(number, len(ranks))

    walk(opened(jaxpr), {variable: number for number, variable in enumerate(opened(jaxpr).invars)})
    return ranks
