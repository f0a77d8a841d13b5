"""StableHLO as steps to be walked: every function read once, dead steps left out."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.exact.pieces import Data
from parity.exact.terms import REAL, RefusalError
from parity.jax_internals import ir
from parity.mlir import attribute_items

__all__ = ["Block", "Module", "Step", "ints", "sort_of"]

EFFECTS = re.compile(r"custom_call|send|recv|infeed|outfeed|callback|rng$")


@dataclasses.dataclass(eq=False)
class Step:
    """One operation of a function.

    Args:
        name: such as ``stablehlo.add``.
        operands, results: slots of the function's values.
        shapes, sorts: of the results.
        attributes: as MLIR has them.
        blocks: its regions.
        source: the operation, for messages.
        memory: what handlers keep of the attributes.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    sorts: tuple[str, ...]
    attributes: Mapping[str, Any]
    blocks: "tuple[Block, ...]"
    source: Any
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)

    def remember(self, key: str, make: Any) -> Any:
        """Returns what ``make`` made of the attributes when first asked."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    def dims(self, name: str) -> tuple[int, ...]:
        """Returns an attribute that lists integers; empty where it is absent."""
        return self.remember(name, lambda: ints(self.attributes.get(name)))

    def text(self, name: str) -> str:
        """Returns an attribute as MLIR prints it; empty where it is absent."""
        return self.remember(f"text {name}", lambda: str(self.attributes.get(name, "")))


@dataclasses.dataclass(eq=False)
class Block:
    """A region: parameters first among its values; values of enclosing regions keep their slots."""

    parameters: tuple[int, ...]
    steps: list[Step]
    outputs: tuple[int, ...]


def ints(attribute: Any) -> tuple[int, ...]:
    """Returns the integers of an attribute, flat."""
    if attribute is None:
        return ()
    if isinstance(attribute, ir.IntegerAttr):
        return (attribute.value,)
    if isinstance(attribute, ir.DenseIntElementsAttr):
        return tuple(np.array(attribute).ravel().tolist())
    return tuple(int(each) for each in attribute)


@functools.cache
def sort_of(element: str) -> str:
    """Returns the sort of an element type.

    Raises:
        RefusalError: it is neither a float, an integer nor a boolean.
    """
    if re.fullmatch(r"b?f\d+\w*", element):
        return REAL
    if re.fullmatch(r"u?i\d+", element):
        return element
    raise RefusalError(f"got elements {element}, expected floats, integers or booleans")


def splat(attribute: Any, sort: str) -> Any:
    """Returns the one value of a constant: a Python number."""
    value = attribute.get_splat_value().value
    return value if sort == REAL else int(value)


def data_of(attribute: Any, shape: tuple[int, ...]) -> Data:
    """Returns the elements of a constant.

    Raises:
        RefusalError: they cannot be read.
    """
    try:
        array = np.array(attribute)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RefusalError(f"constant: {error}") from error
    return Data(array.tobytes(), array.dtype.str, shape)


class Module:
    """The functions of a module, read when first called.

    Args:
        module: an MLIR module.
        sort_of: the sort of an element type.

    Attributes:
        meshes: ``{name: ((axis, size), ...)}``.
    """

    def __init__(self, module: ir.Module, sort_of: Callable[[str], str] = sort_of):
        self._sort_of = sort_of
        self._functions: dict[str, Any] = {}
        self.meshes: dict[str, tuple[tuple[str, int], ...]] = {}
        operation: Any
        for op in module.body.operations:
            operation = op.operation
            name = operation.attributes["sym_name"].value
            if operation.name == "func.func":
                self._functions[name] = operation
            elif operation.name == "sdy.mesh":
                text = str(operation.attributes["mesh"])
                if "device_ids" in text:
                    raise RefusalError(f"mesh {name}: got devices in an order of their own")
                self.meshes[name] = tuple(
                    (axis, int(size)) for axis, size in re.findall(r'"([^"]+)"\s*=\s*(\d+)', text)
                )
        self._read: dict[str, tuple[Block, int]] = {}

    def function(self, name: str) -> tuple[Block, int]:
        """Returns a function and how many values it has."""
        if name not in self._read:
            numbers: dict[Any, int] = {}
            block = self._block(self._functions[name].regions[0], numbers)
            self._read[name] = block, len(numbers)
        return self._read[name]

    def _block(self, region: Any, numbers: dict[Any, int]) -> Block:
        blocks = list(region.blocks)
        if len(blocks) != 1:
            raise RefusalError(f"got a region of {len(blocks)} blocks, expected one")
        for argument in blocks[0].arguments:
            numbers[argument] = len(numbers)
        parameters = tuple(numbers[argument] for argument in blocks[0].arguments)
        steps, outputs = [], ()
        for op in blocks[0].operations:
            operation = op.operation
            operands = tuple(numbers[value] for value in operation.operands)
            if operation.name in ("func.return", "stablehlo.return", "sdy.return"):
                outputs = operands
                continue
            inner = tuple(self._block(each, numbers) for each in operation.regions)
            results = []
            for value in operation.results:
                numbers[value] = len(numbers)
                results.append(numbers[value])
            steps.append(self._step(operation, operands, tuple(results), inner))
        return Block(parameters, _living(steps, outputs), outputs)

    def _step(self, operation: Any, operands: tuple, results: tuple, inner: tuple) -> Step:
        types = [value.type for value in operation.results]
        ranked = all(isinstance(each, ir.RankedTensorType) for each in types)
        return Step(
            name=operation.name,
            operands=operands,
            results=results,
            shapes=tuple(tuple(each.shape) for each in types) if ranked else (),
            sorts=tuple(self._sort_of(str(each.element_type)) for each in types) if ranked else (),
            attributes=dict(attribute_items(operation)),
            blocks=inner,
            source=operation,
        )


def _living(steps: list[Step], outputs: tuple[int, ...]) -> list[Step]:
    """Leaves out what nothing in the block uses."""
    used, kept = set(outputs), []
    for step in reversed(steps):
        if used & set(step.results) or EFFECTS.search(step.name):
            kept.append(step)
            used |= set(step.operands) | _captures(step)
    return kept[::-1]


def _captures(step: Step) -> set[int]:
    found: set[int] = set()
    for block in step.blocks:
        found |= set(block.outputs)
        for inner in block.steps:
            found |= set(inner.operands) | _captures(inner)
    return found
