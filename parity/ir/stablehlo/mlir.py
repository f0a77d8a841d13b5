"""Values and constants of a StableHLO module, followed through calls.

The module comes from ``lowered.compiler_ir("stablehlo")``; nothing is imported from jaxlib, the objects are
read by their attributes only.
"""

import dataclasses
import re
from typing import Any

__all__ = ["Affine", "Scope", "Values", "byte_size", "name_of", "shape_text"]

_INT = re.compile(r"dense<(-?\d+)> : tensor<(?:i|ui|si)\d+>$")
_INTEGER = re.compile(r"tensor<(?:i|ui|si)\d+>")
_WIDTH = re.compile(r"(\d+)")
_SCALAR_MOVES = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.broadcast_in_dim"})
_FOLDED = frozenset({"stablehlo.add", "stablehlo.subtract", "stablehlo.multiply"})


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """A function body entered through a call: its block, the call's operands and the scope of those."""

    block: Any
    operands: Any
    parent: "Scope | None"


@dataclasses.dataclass(frozen=True, slots=True)
class Affine:
    """``factor * carry[slot] + offset``; a constant has factor 0 and slot -1."""

    slot: int
    factor: int
    offset: int


def name_of(op: Any) -> str:
    """Returns the name of an operation, such as ``stablehlo.add``."""
    return op.operation.name


def terminator(block: Any) -> Any:
    """Returns the last operation of a block."""
    operations = block.operations
    return operations[len(operations) - 1]


def shape_text(kind: Any) -> str:
    """Returns a tensor type as HLO writes it, such as ``f32[2,3]``; other types as MLIR prints them."""
    if not hasattr(kind, "shape"):
        return str(kind)
    element = str(kind.element_type).lower().replace("ui", "u")
    element = {"i1": "pred"}.get(element, re.sub(r"^i(?=\d)", "s", element))
    return f"{element}[{','.join(map(str, kind.shape))}]"


def byte_size(kind: Any) -> int:
    """Returns the bytes of a tensor type without padding; 0 for tokens and other types without a shape.

    Raises:
        ValueError: the tensor has a dynamic dimension.
    """
    if not hasattr(kind, "shape"):
        return 0
    text = str(kind.element_type).lower()
    width = _WIDTH.search(text)
    bits = 8 if text == "i1" or width is None else int(width.group(1))
    bits = bits * 2 if text.startswith("complex") else bits
    count = 1
    for size in kind.shape:
        if size < 0:
            raise ValueError(f"structure: got a dynamic dimension in {kind}, expected static shapes")
        count *= size
    return -(-count * bits // 8)


class Values:
    """Follows values of one module to what defines them."""

    def __init__(self, functions: dict[str, Any]):
        self.functions = functions

    def callee(self, call: Any) -> Any:
        """Returns the body block of the function that a call names."""
        name = call.attributes["callee"].value
        return self.functions[name].operation.regions[0].blocks[0]

    def resolve(self, value: Any, scope: Scope | None) -> tuple[Any, Scope | None]:
        """Returns the value behind calls, function arguments and barriers, with its scope."""
        while True:
            if hasattr(value, "arg_number"):
                if scope is None or value.owner != scope.block:
                    return value, scope
                value, scope = scope.operands[value.arg_number], scope.parent
                continue
            op = value.owner
            name = name_of(op)
            if name in ("func.call", "call"):
                block = self.callee(op)
                scope = Scope(block, op.operands, scope)
                value = terminator(block).operands[value.result_number]
            elif name == "stablehlo.optimization_barrier":
                value = op.operands[value.result_number]
            else:
                return value, scope

    def affine(self, value: Any, scope: Scope | None, block: Any) -> Affine | None:
        """Returns a value as an affine function of one argument of ``block``, or None if it is not."""
        value, scope = self.resolve(value, scope)
        if hasattr(value, "arg_number"):
            if block is not None and value.owner == block:
                return Affine(value.arg_number, 1, 0)
            return self._outer(value, scope, block)
        op = value.owner
        name = name_of(op)
        if name == "stablehlo.constant":
            if not _INTEGER.fullmatch(str(value.type)):  # the bindings cannot read constants of all types
                return None
            match = _INT.match(str(op.attributes["value"]))
            return Affine(-1, 0, int(match.group(1))) if match else None
        if name in _SCALAR_MOVES:
            return self.affine(op.operands[0], scope, block)
        if name == "stablehlo.select":
            return self._wrapped_index(op, scope, block)
        if name not in _FOLDED:
            return None
        left, right = (self.affine(operand, scope, block) for operand in op.operands)
        return _fold(name, left, right)

    def constant(self, value: Any, scope: Scope | None) -> int | None:
        """Returns the integer a value always has, or None."""
        found = self.affine(value, scope, None)
        return found.offset if found is not None and found.factor == 0 else None

    def invariant(self, loop: Any, slot: int, scope: Scope | None) -> bool:
        """Returns whether a while loop never changes the carry at ``slot``."""
        body = loop.operation.regions[1].blocks[0]
        value, _ = self.resolve(terminator(body).operands[slot], scope)
        return hasattr(value, "arg_number") and value.owner == body and value.arg_number == slot

    def _outer(self, value: Any, scope: Scope | None, block: Any) -> Affine | None:
        owner = value.owner.owner
        if name_of(owner) != "stablehlo.while" or not self.invariant(owner, value.arg_number, scope):
            return None
        return self.affine(owner.operands[value.arg_number], scope, block)

    def _wrapped_index(self, op: Any, scope: Scope | None, block: Any) -> Affine | None:
        """Reads ``select(i < 0, i + n, i)``, how indexing wraps a negative index, as ``i``."""
        test, _ = self.resolve(op.operands[0], scope)
        if hasattr(test, "arg_number") or name_of(test.owner) != "stablehlo.compare":
            return None
        if " LT" not in str(test.owner.attributes["comparison_direction"]):
            return None
        zero = self.constant(test.owner.operands[1], scope)
        return self.affine(op.operands[2], scope, block) if zero == 0 else None


def _fold(name: str, left: Affine | None, right: Affine | None) -> Affine | None:
    if left is None or right is None:
        return None
    if name == "stablehlo.multiply":
        if left.factor and right.factor:
            return None
        value, times = (left, right.offset) if left.factor else (right, left.offset)
        return Affine(value.slot if times else -1, value.factor * times, value.offset * times)
    sign = -1 if name == "stablehlo.subtract" else 1
    if left.factor and right.factor and left.slot != right.slot:
        return None
    factor = left.factor + sign * right.factor
    slot = max(left.slot, right.slot) if factor else -1
    return Affine(slot, factor, left.offset + sign * right.offset)
