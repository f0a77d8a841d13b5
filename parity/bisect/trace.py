"""A traced program evaluated operation by operation: every value it makes, with what it is made of."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.bisect.sketch import Sketch, sketch
from parity.ir.jax_internals import equation_scope, scan_split
from parity.values.rng.demand import CALLS, bodies, opened

__all__ = ["COMPILED", "Node", "Trace", "evaluate"]

LAYOUT_ONLY = frozenset({"sharding_constraint", "reshard", "mesh_cast", "optimization_barrier"})
COMPILED = frozenset({"shard_map"})
"""Operations that are run as a whole: device by device, once compiled."""
OWN_STACK = frozenset({"remat2", "checkpoint"})
"""Calls whose operations carry the whole call stack themselves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Around:
    """Where an operation stands.

    Args:
        calls: the called functions around it that JAX may have traced for another caller, outermost first.
        turns: the loops around it with the number of the turn, outermost first.
        backward: whether it belongs to the backward pass.
        decided: the conditions of the branches and loops around it, outermost first.
    """

    calls: tuple[Any, ...] = ()
    turns: tuple[tuple[Any, int], ...] = ()
    backward: bool = False
    decided: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One value that a program made.

    Args:
        name: the operation, ``argument``, ``constant``, ``turn`` (a slice that a loop hands to a turn),
            ``stack`` (what the turns gave, together), ``branch`` (what the chosen branch gave, or whether a loop of
            unknown length goes on).
        inputs: the values it is made of, by number.
        sketch: the value in short.
        around: where the operation stands.
        equation: the operation as traced; None where there is none.
        label: path of an argument; else empty.
        literal: whether it depends on constants alone.
    """

    name: str
    inputs: tuple[int, ...]
    sketch: Sketch
    around: Around = Around()
    equation: Any = None
    label: str = ""
    literal: bool = False


@dataclasses.dataclass(frozen=True)
class Trace:
    """What a program did, value by value.

    Args:
        nodes: in the order of execution.
        outputs: number of the value that each result is.
        results: the results themselves.
    """

    nodes: list[Node]
    outputs: list[int]
    results: list[Any]


def evaluate(jaxpr: Any, arguments: Sequence[Any], labels: Sequence[str]) -> Trace:
    """Evaluates a program operation by operation on one device: calls opened, loops turn by turn.

    Args:
        jaxpr: the closed program.
        arguments: flat.
        labels: names of the arguments.
    """
    return _Evaluation().run(jaxpr, arguments, labels)


Value = tuple[Any, int]
"""An array and the number of its node."""


class _Evaluation:
    def __init__(self):
        self._nodes: list[Node] = []

    def run(self, jaxpr: Any, arguments: Sequence[Any], labels: Sequence[str]) -> Trace:
        values = [
            (array, self._node("argument", (), array, label=label))
            for array, label in zip(arguments, labels, strict=True)
        ]
        outputs = self._body(jaxpr, values, Around())
        return Trace(self._nodes, [number for _, number in outputs], [array for array, _ in outputs])

    def _node(
        self, name: str, inputs: Sequence[int], value: Any, around: Around = Around(), **more: Any
    ) -> int:
        literal = name != "argument" and all(self._nodes[number].literal for number in inputs)
        self._nodes.append(Node(name, tuple(inputs), sketch(value), around, literal=literal, **more))
        return len(self._nodes) - 1

    def _constant(self, value: Any) -> Value:
        array = value if hasattr(value, "dtype") else np.asarray(value)
        return value, self._node("constant", (), array)

    def _body(self, closed: Any, arguments: Sequence[Value], around: Around) -> list[Value]:
        jaxpr = opened(closed)
        values: dict[Any, Value] = {
            variable: self._constant(array)
            for variable, array in zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=False)
        }
        values.update(zip(jaxpr.invars, arguments, strict=True))
        last = {variable: at for at, each in enumerate(jaxpr.eqns) for variable in _variables(each.invars)}
        kept = set(_variables(jaxpr.outvars))

        def read(variable: Any) -> Value:
            return self._constant(variable.val) if isinstance(variable, core.Literal) else values[variable]

        for at, equation in enumerate(jaxpr.eqns):
            backward = around.backward or "transpose(" in equation_scope(equation)
            here = dataclasses.replace(around, backward=backward)
            outputs = self._equation(equation, [read(variable) for variable in equation.invars], here)
            values.update(zip(equation.outvars, outputs, strict=True))
            for variable in {*_variables(equation.invars), *equation.outvars} - kept:
                if last.get(variable, at) == at:
                    values.pop(variable, None)
        return [read(variable) for variable in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Value], here: Around) -> Sequence[Value]:
        name, inner = equation.primitive.name, bodies(equation)
        if name == "scan":
            return self._scan(equation, inputs, here)
        if name == "while":
            return self._while(equation, inputs, here)
        if name == "cond":
            chosen = min(max(int(inputs[0][0]), 0), len(inner) - 1)
            within = dataclasses.replace(here, calls=(), decided=(*here.decided, inputs[0][1]))
            outputs = self._body(inner[chosen], inputs[1:], within)
            return [
                (array, self._node("branch", (number, inputs[0][1]), array, here, equation=equation))
                for array, number in outputs
            ]
        if name in CALLS and len(inner) == 1 and len(opened(inner[0]).invars) == len(inputs):
            calls = () if name in OWN_STACK else (*here.calls, equation)
            return self._body(inner[0], inputs, dataclasses.replace(here, calls=calls))
        if name in LAYOUT_ONLY:
            return inputs
        results = _bound(equation, [array for array, _ in inputs])
        numbers = [number for _, number in inputs]
        return [(array, self._node(name, numbers, array, here, equation=equation)) for array in results]

    def _scan(self, equation: Any, inputs: list[Value], here: Around) -> list[Value]:
        (body,), (constants, carries) = bodies(equation), scan_split(equation)
        length, reverse = equation.params["length"], equation.params["reverse"]
        fixed, carry = inputs[:constants], inputs[constants : constants + carries]
        scanned = inputs[constants + carries :]
        rows: list[list[Value]] = [[] for _ in equation.outvars[carries:]]
        for index in reversed(range(length)) if reverse else range(length):
            around = dataclasses.replace(here, calls=(), turns=(*here.turns, (equation, index)))
            slices = []
            for array, number in scanned:
                row = _rows(array)[index]
                slices.append((row, self._node("turn", (number,), row, around)))
            outputs = self._body(body, [*fixed, *carry, *slices], around)
            carry = outputs[:carries]
            for row, value in zip(rows, outputs[carries:], strict=True):
                row.append(value)
        stacked = [
            self._stack(row[::-1] if reverse else row, out, here)
            for row, out in zip(rows, equation.outvars[carries:], strict=True)
        ]
        return [*carry, *stacked]

    def _stack(self, row: list[Value], out: Any, here: Around) -> Value:
        arrays = [array for array, _ in row]
        if any(jnp.issubdtype(array.dtype, jax.dtypes.prng_key) for array in arrays):
            whole = jnp.stack(arrays)
        else:
            whole = np.stack(arrays) if arrays else np.zeros(out.aval.shape, out.aval.dtype)
        return whole, self._node("stack", [number for _, number in row], whole, here)

    def _while(self, equation: Any, inputs: list[Value], here: Around) -> list[Value]:
        first, second = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        fixed = inputs[:first], inputs[first : first + second]
        carry, turn = inputs[first + second :], 0
        while True:
            around = dataclasses.replace(here, calls=(), turns=(*here.turns, (equation, turn)))
            goes_on, number = self._body(equation.params["cond_jaxpr"], [*fixed[0], *carry], around)[0]
            self._node("branch", (number, number), goes_on, around, equation=equation)
            if not bool(goes_on):
                return carry
            within = dataclasses.replace(around, decided=(*here.decided, number))
            carry = self._body(equation.params["body_jaxpr"], [*fixed[1], *carry], within)
            turn += 1


def _rows(array: Any) -> Any:
    """Returns an array that is cheap to take rows of: the host's, unless it holds keys."""
    return array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else np.asarray(array)


def _variables(row: Sequence[Any]) -> list[Any]:
    return [variable for variable in row if not isinstance(variable, core.Literal)]


def _bound(equation: Any, inputs: list[Any]) -> list[Any]:
    """Runs one operation by itself, on one device."""
    if equation.primitive.name in COMPILED:
        return list(_compiled(equation)(*inputs))
    params = {
        name: None if isinstance(value, jax.sharding.Sharding) else value
        for name, value in equation.params.items()
    }
    outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(params))
    return list(outputs) if equation.primitive.multiple_results else [outputs]


@functools.lru_cache(maxsize=4_096)
def _compiled(equation: Any) -> Any:
    """Returns an operation that every turn of a loop would otherwise run device by device, compiled once."""
    params = equation.primitive.get_bind_params(equation.params)
    return jax.jit(lambda *inputs: list(equation.primitive.bind(*inputs, **params)))
