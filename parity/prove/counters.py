"""Counters of two integer types, such as int32 and uint32: whether both only count up, by the same number."""

from typing import Any

from parity.ir.jax_internals import ir
from parity.ir.stablehlo.program import Op, StableProgram

__all__ = ["increment"]


def increment(program: StableProgram, argument: int, result: int) -> int | None:
    """Returns by how much a result counts an argument up, where that is all the argument is used for.

    A sum of integers wraps alike in signed and unsigned ones, so two counters of equal width that start from the same
    bits and count up by the same number have the same bits for ever.

    Args:
        program: the program.
        argument, result: positions in ``@main``.

    Returns:
        The number; None where the argument or the counted value has another use, or is no such sum.
    """
    counter, counted = program.body.parameters[argument], program.body.outputs[result]
    readers = [op for op in program.body.walk() if counter in op.operands]
    if len(readers) != 1 or readers[0].form.name != "stablehlo.add" or counted not in readers[0].results:
        return None
    if readers[0].form.attributed:
        return None
    returned = [value for value in program.body.outputs if value in (counter, counted)]
    inside = {value for op in program.body.walk() for region in op.regions for value in region.outputs}
    if len(returned) != 1 or counter in inside or counted in inside:
        return None
    if any(counted in op.operands for op in program.body.walk()):
        return None
    others = [value for value in readers[0].operands if value != counter]
    made = {value: op for op in program.body.ops for value in op.results}
    return _constant(made.get(others[0])) if len(others) == 1 else None


def _constant(op: Op | None) -> int | None:
    """Returns the integer that a constant is; None if it says anything else, or is none."""
    if op is None or op.form.name != "stablehlo.constant":
        return None
    items = dict(op.form.attributes)
    value = items.pop("value")
    if items or not isinstance(value, ir.DenseIntElementsAttr) or not value.is_splat:
        return None
    known: Any = value.get_splat_value()
    return int(known.value)
