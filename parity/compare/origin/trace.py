"""Evaluates a traced program operation by operation; records every value with its inputs and its source."""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.weights.transforms import Transform
from parity.compare.origin.sketch import Sketch, sketch
from parity.ir.interpreter import Interpreter, Position, along
from parity.ir.jaxprs import bind
from parity.ir.location import SourceLocation, equation_source
from parity.ir.precision import widen, widened

Layouts = Mapping[tuple[Any, ...], Sequence[tuple[Transform, bool]]]
"""Shape -> the transforms that carry a value to the other side; False to invert the transform.

A shape that starts with ``...`` is that of the last axes, as products with a joined weight have them.
"""

NO_LAYOUTS: Layouts = types.MappingProxyType({})
TOP = Position()
COMPILED = frozenset({"shard_map"})
"""Operations that are compiled once and run as a whole, because JAX would run them device by device."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One value that a program computed.

    Args:
        name: the operation, ``argument``, ``constant``, ``turn`` (a slice that a loop passes to an iteration),
            ``stack`` (the stacked results of all iterations), ``branch`` (the result of the chosen branch, or the
            condition by which a loop of unknown length continues).
        inputs: numbers of the values that it is computed from.
        sketch: summary of the value.
        around: position of the operation.
        equation: the operation as traced; None if there is none.
        label: path of an argument; else empty.
        literal: True if it depends only on constants.
        leaf: path of the only argument that it is computed from; else empty.
        parts: for each layout of a value of this shape, sketches of the arrays that hold it on the other side.
    """

    name: str
    inputs: tuple[int, ...]
    sketch: Sketch
    around: Position = TOP
    equation: Any = None
    label: str = ""
    literal: bool = False
    leaf: str = ""
    parts: tuple[tuple[Sketch, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Trace:
    """The values that a program computed.

    Args:
        nodes: in the order of execution.
        outputs: the number of each result's value.
    """

    nodes: list[Node]
    outputs: list[int]
    results: list[Any]


def evaluate(  # noqa: PLR0913 - all but the program by keyword
    jaxpr: Any,
    arguments: Sequence[Any],
    labels: Sequence[str],
    layouts: Layouts = NO_LAYOUTS,
    *,
    wide: bool = False,
    ascending: bool = True,
    check: Callable[[], None] = lambda: None,
) -> Trace:
    """Evaluates a program operation by operation on one device, with calls inlined and loops unrolled.

    Args:
        layouts: the layouts of weights that the other side holds in another way.
        wide: computes in float32 instead of narrow floats.
        ascending: see `sketch`; an evaluation that is only compared with another of the same program needs none.
        check: called before each operation; raises to end the evaluation.
    """
    evaluation = _Evaluation(layouts, wide, ascending, check)
    values = [
        (array, evaluation.node("argument", (), array, label=label))
        for array, label in zip(map(evaluation.given, arguments), labels, strict=True)
    ]
    outputs = evaluation.body(jaxpr, values, TOP)
    return Trace(evaluation.nodes, [number for _, number in outputs], [array for array, _ in outputs])


Value = tuple[Any, int]
"""An array and the number of its node."""


class _Evaluation(Interpreter):
    def __init__(self, layouts: Layouts, wide: bool, ascending: bool, check: Callable[[], None]):
        self.nodes: list[Node] = []
        self._layouts, self._wide, self._ascending, self._check = layouts, wide, ascending, check

    def node(self, name: str, inputs: Sequence[int], value: Any, around: Position = TOP, **more: Any) -> int:
        computed = [node for number in inputs if not (node := self.nodes[number]).literal]
        leaves = {node.leaf for node in computed} or {more.get("label", "")}
        facts = {
            "literal": name != "argument" and not computed,
            "leaf": leaves.pop() if len(leaves) == 1 else "",
            "parts": tuple(_carried(value, *layout) for layout in self._layouts_of(np.shape(value))),
        }
        node = Node(name, tuple(inputs), sketch(value, self._ascending), around, **facts, **more)
        if name == "random_fold_in":  # with 0 it makes the key that a split makes first, by another way
            node = dataclasses.replace(
                node, sketch=dataclasses.replace(node.sketch, kind=(*node.sketch.kind, name))
            )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _layouts_of(self, shape: tuple[int, ...]) -> list[tuple[Transform, bool]]:
        keys = [shape, *((..., *shape[at:]) for at in range(len(shape)))]
        return [layout for key in keys for layout in self._layouts.get(key, ())]

    def given(self, value: Any) -> Any:
        return widened(value) if self._wide else value

    def constant(self, value: Any) -> Value:
        value = self.given(value)
        array = value if hasattr(value, "dtype") else np.asarray(value)
        return value, self.node("constant", (), array)

    def operation(self, equation: Any, inputs: list[Value], here: Position) -> Sequence[Value]:
        self._check()
        arrays, numbers = [array for array, _ in inputs], [number for _, number in inputs]
        name = equation.primitive.name
        run = (lambda equation, arrays: _compiled(equation)(*arrays)) if name in COMPILED else bind
        results = widen(equation, arrays, run) if self._wide else run(equation, arrays)
        return [(array, self.node(name, numbers, array, here, equation=equation)) for array in results]

    def concrete(self, value: Value) -> Any:
        return value[0]

    def condition(self, value: Value) -> int:
        return value[1]

    def slice(self, value: Value, index: int, here: Position) -> Value:
        array, number = value
        row = _rows(array)[index]
        return row, self.node("turn", (number,), row, here)

    def stack(self, values: list[Value], out: Any, here: Position) -> Value:
        arrays = [array for array, _ in values]
        if any(jnp.issubdtype(array.dtype, jax.dtypes.prng_key) for array in arrays):
            whole = jnp.stack(arrays)
        else:
            whole = np.stack(arrays) if arrays else np.zeros(out.aval.shape, out.aval.dtype)
        return whole, self.node("stack", [number for _, number in values], whole, here)

    def branched(self, outputs: list[Value], decided: Value, equation: Any, here: Position) -> list[Value]:
        return [
            (array, self.node("branch", (number, decided[1]), array, here, equation=equation))
            for array, number in outputs
        ]

    def selected(self, decided: Value, new: Value, old: Value, here: Position) -> Value:
        (mask, on), (array, number), (before, former) = decided, new, old
        whole = jnp.where(along(mask, array), array, before)
        return whole, self.node("select_n", (on, former, number), whole, here)

    def continues(self, decided: Value, equation: Any, here: Position) -> None:
        goes_on, number = decided
        self.node("branch", (number, number), goes_on, here, equation=equation)


def _carried(value: Any, transform: Transform, forward: bool) -> tuple[Sketch, ...]:
    arrays = [np.asarray(value)]
    return tuple(map(sketch, transform.apply(arrays) if forward else transform.invert(arrays)))


def _rows(array: Any) -> Any:
    """Returns an array with fast access to rows: on the host, unless it holds keys."""
    return array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else np.asarray(array)


@functools.lru_cache(maxsize=4_096)
def _compiled(equation: Any) -> Any:
    """Returns a compiled operation that would otherwise run device by device in each iteration."""
    params = equation.primitive.get_bind_params(equation.params)
    return jax.jit(lambda *inputs: list(equation.primitive.bind(*inputs, **params)))


def site(node: Node) -> SourceLocation:
    """Returns the source location of a value; for slices and stacks of a loop, that of the loop."""
    calls = node.around.calls if node.equation is None else (*node.around.calls, node.equation)
    return equation_source(calls[-1], calls[:-1]) if calls else SourceLocation()


def functions_around(node: Node) -> tuple[str, ...]:
    """Returns the user's functions on the call stack of a value, innermost first."""
    return tuple(frame.function for frame in site(node).own)
