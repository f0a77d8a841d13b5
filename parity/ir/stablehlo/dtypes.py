"""Dtypes of the operations whose precision matters: dots, exponentials, sums, roots.

They are read from the lowered program, which has the dtypes that the source requests. Backends widen and narrow types:
the CPU computes bfloat16 in float32, a TPU multiplies float32 in bfloat16 passes.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from parity.ir.location import SourceLocation, inlined_source
from parity.ir.mlir import numbers
from parity.ir.stablehlo.program import Op
from parity.ir.stablehlo.reader import read_program

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
"""The operations that are read, with a name for each; sums are the only reductions."""

OUTER = "outer product"
"""A dot that sums nothing: a product, which the other side may write as such."""
_FLOATS = ("f", "bf", "complex")
_PRECISION = re.compile(r"precision ([A-Z]+)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypedOp:
    """One operation with its types.

    Args:
        kind: a value of ``SENSITIVE``, or ``OUTER``.
        precision: requested precision of a dot or convolution, such as ``HIGHEST`` or an algorithm; empty for the
            default.
        since: source of the conversion that gives its first operand this type; None if an argument has it.
    """

    kind: str
    operands: tuple[str, ...]
    result: str
    sizes: tuple[int, ...]
    provenance: SourceLocation
    precision: str = ""
    since: SourceLocation | None = None

    @property
    def types(self) -> str:
        """The types as text, such as ``bf16 x bf16 -> f32``, and the precision if it is not the default."""
        asked = f" at {self.precision}" if self.precision else ""
        return f"{' x '.join(self.operands)} -> {self.result}{asked}"


def read_dtypes(lowered: Any) -> tuple[TypedOp, ...]:
    """Returns the precision-sensitive operations of a lowered program on floats, its calls inlined, in program order.

    Scalars that depend on no argument are left out.
    """
    program, found = read_program(lowered), []
    constants: set[int] = set()
    begun: dict[int, Op] = {}  # value -> the conversion that gives it its type
    with program.module_op.context:
        for op in program.body.walk():
            if not op.regions and constants.issuperset(op.operands):
                constants.update(op.results)
            if len(op.results) == 1 and (first := _conversion(op, begun)) is not None:
                begun[op.results[0]] = first
            if op.name in SENSITIVE and (typed := _typed(op, constants)) is not None:
                first = begun.get(op.operands[0])
                found.append(dataclasses.replace(typed, since=inlined_source(first)) if first else typed)
    return tuple(found)


def _conversion(op: Op, begun: Mapping[int, Op]) -> Op | None:
    """Returns the conversion that gives an operation's result its type; None if there is none.

    An index that becomes a float of the usual width says nothing.
    """
    made = op.form.elements[0]
    if op.name == "stablehlo.convert":
        given = str(op.source.operands[0].type.element_type)
        return op if made not in ("f32", "f64") or given.startswith(_FLOATS) else None
    before = (begun[value] for value in op.operands if value in begun)
    return next((each for each in before if each.form.elements[0] == made), None)


def _typed(op: Op, constants: set[int]) -> TypedOp | None:
    """Returns an operation with its types; None for integers, reductions but sums, and numbers of `constants`."""
    if op.name == "stablehlo.reduce" and [inner.name for inner in op.regions[0].ops] != ["stablehlo.add"]:
        return None
    count = len(op.operands) // 2 if op.name == "stablehlo.reduce" else len(op.operands)
    result, sizes = op.form.elements[0], op.form.shapes[0]
    if not result.startswith(_FLOATS):
        return None
    if not sizes and constants.issuperset(op.operands):
        return None  # a number that the compiler folds, such as the square root of a head's size
    axes = str(op.form.attributes.get("dot_dimension_numbers", ""))
    is_outer = op.name == "stablehlo.dot_general" and not numbers(axes, "lhs_contracting_dimensions")
    return TypedOp(
        kind=OUTER if is_outer else SENSITIVE[op.name],
        operands=tuple(str(operand.type.element_type) for operand in list(op.source.operands)[:count]),
        result=result,
        sizes=sizes,
        provenance=inlined_source(op),
        precision=_precision(op),
    )


def _precision(op: Op) -> str:
    """Returns the precision of each operand, once if they are equal, and the algorithm."""
    given = {name: str(op.form.attributes.get(name, "")) for name in ("precision_config", "algorithm")}
    asked = list(dict.fromkeys(_PRECISION.findall(given["precision_config"])))
    return ", ".join([*([] if asked == ["DEFAULT"] else asked), *filter(None, [given["algorithm"]])])
