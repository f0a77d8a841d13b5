"""Dtypes of the operations whose precision matters: dots, exponentials, sums, roots.

Read from the lowered program: backends widen and narrow types as they like (the CPU computes bfloat16 in
float32, a TPU multiplies float32 in bfloat16 passes), the lowered program holds what the source asks for.
"""

import dataclasses
import re
from typing import Any

from parity.ir.jax_internals import stablehlo_module
from parity.ir.location import SourceLocation, operation_source
from parity.ir.mlir import attribute_items
from parity.ir.stablehlo import mlir

__all__ = ["SENSITIVE", "TypedOp", "read_dtypes"]

SENSITIVE = {
    "stablehlo.dot_general": "dot",
    "stablehlo.convolution": "convolution",
    "chlo.ragged_dot": "ragged dot",
    "stablehlo.exponential": "exponential",
    "stablehlo.exponential_minus_one": "exponential",
    "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log",
    "stablehlo.logistic": "logistic",
    "stablehlo.rsqrt": "rsqrt",
    "stablehlo.sqrt": "sqrt",
    "stablehlo.reduce": "sum",
}
"""The operations that are read, with the word for each; of the reductions only sums."""

_FLOATS = ("f", "bf", "complex")
_PRECISION = re.compile(r"precision ([A-Z]+)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypedOp:
    """One operation with its types.

    Args:
        kind: a word of ``SENSITIVE``.
        operands: element types it takes.
        result: element type it gives.
        precision: what a dot or convolution asks for, such as ``HIGHEST`` or an algorithm; empty for the default.
        sizes: dimensions of its result.
        loops: number of loops around it.
        provenance: where it comes from.
    """

    kind: str
    operands: tuple[str, ...]
    result: str
    sizes: tuple[int, ...]
    loops: int
    provenance: SourceLocation
    precision: str = ""

    @property
    def types(self) -> str:
        """The types in one word, such as ``bf16 x bf16 -> f32``, and the precision if it is not the default."""
        asked = f" at {self.precision}" if self.precision else ""
        return f"{' x '.join(self.operands)} -> {self.result}{asked}"


def read_dtypes(lowered: Any) -> tuple[TypedOp, ...]:
    """Lists the precision-sensitive operations of a lowered program, once per call site.

    Args:
        lowered: a ``jax.stages.Lowered`` or its StableHLO module.

    Returns:
        The operations on floating-point values, in program order, without scalars that depend on no argument.

    Raises:
        ValueError: the module has no ``main`` function.
    """
    functions = {}
    for op in stablehlo_module(lowered).body.operations:
        if mlir.name_of(op) == "func.func":
            functions[str(op.attributes["sym_name"]).strip('"')] = op
    if "main" not in functions:
        raise ValueError(f"lowered module: got functions {sorted(functions)}, expected one named main")
    reader = _Reader(functions)
    return tuple(reader.function("main", SourceLocation(), 0))


class _Reader:
    def __init__(self, functions: dict[str, Any]):
        self.functions = functions
        self._known: dict[str, tuple[TypedOp, ...]] = {}

    def function(self, name: str, caller: SourceLocation, loops: int) -> list[TypedOp]:
        """Returns the operations of a function as one call reaches them."""
        if name not in self._known:
            found: list[TypedOp] = []
            for block in self.functions[name].operation.regions[0].blocks:
                self._block(block, 0, found)
            self._known[name] = tuple(found)
        return [
            dataclasses.replace(one, loops=one.loops + loops, provenance=one.provenance.called_by(caller))
            for one in self._known[name]
        ]

    def _block(self, block: Any, loops: int, found: list[TypedOp]) -> None:
        for op in block.operations:
            name = mlir.name_of(op)
            if name in ("func.call", "call"):
                caller = operation_source(op)
                found += self.function(op.attributes["callee"].value, caller, loops)
                continue
            if name in SENSITIVE and (typed := _typed(op, name, loops)) is not None:
                found.append(typed)
            for region in op.operation.regions:
                for inner in region.blocks:
                    self._block(inner, loops + (name == "stablehlo.while"), found)


def _typed(op: Any, name: str, loops: int) -> TypedOp | None:
    if name == "stablehlo.reduce" and not _is_sum(op):
        return None
    kinds = [operand.type for operand in op.operands]
    kinds = kinds[: len(kinds) // 2] if name == "stablehlo.reduce" else kinds
    result = op.results[0].type
    if not str(result.element_type).startswith(_FLOATS):
        return None
    if not result.shape and not any(_depends_on_arguments(operand) for operand in op.operands):
        return None  # a number that the compiler folds, such as the square root of a head's size
    return TypedOp(
        kind=SENSITIVE[name],
        operands=tuple(str(kind.element_type) for kind in kinds),
        result=str(result.element_type),
        sizes=tuple(result.shape),
        loops=loops,
        provenance=operation_source(op),
        precision=_precision(op),
    )


def _precision(op: Any) -> str:
    """Returns the precision of each operand, once where they are alike, and the algorithm."""
    given = {name: str(attribute) for name, attribute in attribute_items(op)}
    asked = list(dict.fromkeys(_PRECISION.findall(given.get("precision_config", ""))))
    return ", ".join([*([] if asked == ["DEFAULT"] else asked), *filter(None, [given.get("algorithm")])])


def _depends_on_arguments(value: Any) -> bool:
    """Returns whether a value is more than a function of constants of its own block."""
    owner = value.owner
    if not hasattr(owner, "operands"):  # a block's: the value is its argument
        return True
    if len(owner.operation.regions):
        return True
    return any(_depends_on_arguments(operand) for operand in owner.operands)


def _is_sum(op: Any) -> bool:
    body = op.operation.regions[0].blocks[0]
    return [mlir.name_of(inner) for inner in body.operations][:-1] == ["stablehlo.add"]
