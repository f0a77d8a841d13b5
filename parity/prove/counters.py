"""Counters of two integer types, such as int32 and uint32: whether both count up by the same number."""

from typing import Any

from parity.ir.jax_internals import ir
from parity.ir.stablehlo.program import Op, StableProgram

__all__ = ["increment"]


def increment(program: StableProgram, argument: int, result: int) -> int | None:
    """Returns the number that a result adds to an argument, if the argument has no other use.

    Signed and unsigned sums wrap in the same way. Therefore two counters of equal width that start from the same bits
    and count up by the same number always have the same bits.

    Args:
        program: the program.
        argument, result: positions in ``@main``.

    Returns:
        The number; None if the argument or the counted value has another use, or is not such a sum.
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
    """Returns the integer of a constant; None if it has other attributes, or if the operation is not a constant."""
    if op is None or op.form.name != "stablehlo.constant":
        return None
    items = dict(op.form.attributes)
    value = items.pop("value")
    if items or not isinstance(value, ir.DenseIntElementsAttr) or not value.is_splat:
        return None
    known: Any = value.get_splat_value()
    return int(known.value)
