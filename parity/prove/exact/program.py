"""StableHLO as steps to be walked: every function read once, dead steps left out."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.ir.jax_internals import ir
from parity.ir.mlir import attribute_items
from parity.ir.stablehlo.operations import Group, facts, has_effect
from parity.prove.exact.memory import Contents
from parity.prove.exact.pieces import Data
from parity.prove.exact.terms import REAL, RefusalError

__all__ = ["Block", "Module", "Step", "ints", "sort_of"]

SAME_VALUE = "sdy.sharding_constraint"
"""An operation that says where its operand lies: no step at all."""
PLACES = "sdy.sharding"
"""The attribute that says where results lie."""
NAMING = frozenset(
    {"sdy.manual_computation", *(f"stablehlo.{name}" for name in ("all_gather", "all_reduce"))}
)
"""Operations whose attributes name a mesh by its symbol."""


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
        content: a number for all of this but operands, results and source; equal numbers mean equal contents.
        memory: what handlers keep of the content; all steps that say the same share it.
        effect: True if it has to run even if nothing uses its results, because of itself or of what it calls.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    sorts: tuple[str, ...]
    attributes: Mapping[str, Any]
    blocks: "tuple[Block, ...]"
    source: Any
    content: int
    memory: dict[str, Any]
    effect: bool

    @functools.cached_property
    def place(self) -> str:
        """``file:line``, as its location says it; asked for while the module is alive."""
        found = re.findall(r'"([^"]*\.py)":(\d+)', str(self.source.location))
        return f"{found[0][0]}:{found[0][1]}" if found else "(no source line)"

    @functools.cached_property
    def callee(self) -> str:
        """The function that it calls, by its name in this module."""
        return self.attributes["callee"].value

    @functools.cached_property
    def captured(self) -> tuple[int, ...]:
        """Slots of the enclosing blocks that its blocks read."""
        return tuple(sorted(_captures(self)))

    @property
    def element(self) -> str:
        """The element type of the first result, as MLIR writes it."""
        return self.remember("element", lambda: str(self.source.results[0].type.element_type))

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
    """A region: parameters first among its values; values of enclosing regions keep their slots.

    Args:
        parameters: slots.
        steps: in order.
        outputs: slots.
        content: a number for all of this.
    """

    parameters: tuple[int, ...]
    steps: list[Step]
    outputs: tuple[int, ...]
    content: int


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
        RefusalError: it is neither a float, an integer nor a boolean; or a float of 4 bits, whose greatest value XLA
            converts to the greatest integer.
    """
    if re.fullmatch(r"b?f(?!4E)\d+\w*", element):
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
        contents: shared with other modules.
        sort_of: the sort of an element type.

    Attributes:
        meshes: ``{name: ((axis, size), ...)}``.
    """

    def __init__(
        self, module: ir.Module, contents: Contents | None = None, sort_of: Callable[[str], str] = sort_of
    ):
        self.contents, self._sort_of = contents or Contents(), sort_of
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
        """Returns a function and how many values it has.

        Raises:
            RefusalError: it calls itself.
        """
        if name not in self._read:
            if name not in self._functions:
                raise RefusalError(f"@{name}: got a function that is called while it is read")
            numbers: dict[Any, int] = {}
            block = self._block(self._functions.pop(name).regions[0], numbers)
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
            operands = tuple([numbers[value] for value in operation.operands])
            if facts(operation.name).group is Group.ENDS:
                outputs = operands
                continue
            if operation.name == SAME_VALUE:
                numbers[operation.results[0]] = operands[0]
                continue
            inner = tuple(self._block(each, numbers) for each in operation.regions)
            results = []
            for value in operation.results:
                numbers[value] = len(numbers)
                results.append(numbers[value])
            steps.append(self._step(operation, operands, tuple(results), inner))
        steps = _living(steps, outputs)
        wired = tuple([(step.content, step.operands, step.results) for step in steps])
        return Block(parameters, steps, outputs, self.contents.number((parameters, wired, outputs)))

    def _step(self, operation: Any, operands: tuple, results: tuple, inner: tuple[Block, ...]) -> Step:
        types = [value.type for value in operation.results]
        ranked = all(isinstance(each, ir.RankedTensorType) for each in types)
        attributes = dict(attribute_items(operation))
        content = self._content(operation.name, attributes, types, inner)
        return Step(
            name=operation.name,
            operands=operands,
            results=results,
            shapes=tuple([tuple(each.shape) for each in types]) if ranked else (),
            sorts=tuple([self._sort_of(str(each.element_type)) for each in types]) if ranked else (),
            attributes=attributes,
            blocks=inner,
            source=operation,
            content=content,
            memory=self.contents.memory(content),
            effect=self._has_effect(operation, attributes, inner),
        )

    def _has_effect(self, operation: Any, attributes: Mapping[str, Any], inner: tuple[Block, ...]) -> bool:
        called = self.function(attributes["callee"].value)[:1] if operation.name == "func.call" else ()
        declared = str(attributes.get("has_side_effect")) == "true"
        return has_effect(operation.name, len(operation.results), declared=declared) or any(
            step.effect for block in (*inner, *called) for step in block.steps
        )

    def _content(self, name: str, attributes: dict[str, Any], types: list[Any], inner: tuple) -> int:
        """Returns a number for what an operation says; symbols stand for what they name, or for nothing else."""
        words = [(key, str(value)) for key, value in attributes.items() if key != PLACES]
        named: Any = None
        if name == "func.call":
            words = [(key, text) for key, text in words if key != "callee"]
            named = self.function(attributes["callee"].value)[0].content
        if any("dense_resource" in text for _, text in words):
            return self.contents.alone()  # the text names the elements
        if any("@" in text for _, text in words):
            if name not in NAMING:
                return self.contents.alone()
            named = tuple(sorted(self.meshes.items()))
        blocks = tuple([block.content for block in inner])
        return self.contents.number((name, tuple(words), tuple(map(str, types)), blocks, named))


def _living(steps: list[Step], outputs: tuple[int, ...]) -> list[Step]:
    """Leaves out what nothing in the block uses."""
    used, kept = set(outputs), []
    for step in reversed(steps):
        if used & set(step.results) or step.effect:
            kept.append(step)
            used |= {*step.operands, *step.captured}
    return kept[::-1]


def _captures(step: Step) -> set[int]:
    found: set[int] = set()
    for block in step.blocks:
        inside = set(block.outputs)
        made = set(block.parameters)
        for inner in block.steps:
            inside |= {*inner.operands, *inner.captured}
            made |= set(inner.results)
        found |= inside - made
    return found
