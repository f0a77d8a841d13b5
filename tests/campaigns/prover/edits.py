"""Editing lowered modules in place, through jaxlib's MLIR bindings."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from parity.ir.jax_internals import ir
from parity.ir.mlir import attribute_items
from parity.ir.stablehlo.operations import facts

__all__ = [
    "Edited",
    "attribute",
    "commutes",
    "copy_module",
    "is_valid",
    "parse_attribute",
    "rebuild",
    "visible_values",
    "walk",
]

Edited = tuple[str, dict] | None
"""The change as text, and facts about it; None if there is nothing to change."""


def commutes(operation: Any, *, exactly: bool = True) -> bool:
    """Returns True if swapping an operation's two operands changes nothing: no bit, or only rounding."""
    if not facts(operation.name).commutes or len(operation.operands) != 2:
        return False
    whole = isinstance(ir.RankedTensorType(operation.results[0].type).element_type, ir.IntegerType)
    return whole or not exactly


def parse_attribute(text: str) -> Any | None:
    """Returns the attribute that a text represents; None if it represents none, or one without a class."""
    try:
        return ir.Attribute.parse(text)
    except (ir.MLIRError, TypeError):
        return None


def copy_module(module: Any) -> Any:
    """Returns a copy of a module, locations included, in the same context."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return ir.Module.parse(buffer.getvalue(), context=module.context)


def walk(module: Any) -> list[Any]:
    """Returns all operations of a module, outer before inner, the same order for a copy."""
    return list(_walk(module.operation))


def _walk(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from _walk(op.operation)


def is_valid(module: Any) -> bool:
    """Returns True if a module still passes MLIR's verifier."""
    # A worker thread that reports an error waits for the GIL, which this thread holds: verify on one thread.
    module.context.enable_multithreading(False)
    try:
        return module.operation.verify()
    except ir.MLIRError:
        return False


def attribute(operation: Any, name: str) -> Any:
    """Returns an attribute of an operation, or None if it has none of that name."""
    return dict(attribute_items(operation)).get(name)


def rebuild(
    operation: Any,
    *,
    name: str = "",
    operands: Sequence[Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Replaces an operation without regions by one with another name, other operands or attributes."""
    made = ir.Operation.create(
        name or operation.name,
        results=[result.type for result in operation.results],
        operands=list(operation.operands) if operands is None else list(operands),
        attributes=dict(attribute_items(operation)) if attributes is None else dict(attributes),
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    for old, new in zip(operation.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    operation.erase()
    return made


def visible_values(operation: Any, accept: Callable[[Any], bool]) -> list[Any]:
    """Returns accepted values that an operation may use: earlier results and arguments of enclosing blocks."""
    found = []
    inner = operation
    while inner.name not in ("func.func", "sdy.manual_computation"):
        block = inner.block
        for op in block.operations:
            if op.operation == inner:
                break
            found += [value for value in op.operation.results if accept(value)]
        if block.owner.name != "func.func":
            found += [value for value in block.arguments if accept(value)]
        inner = block.owner.operation
    return found
