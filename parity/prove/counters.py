"""Counters of two integer types, such as int32 and uint32: whether both count up by the same number."""

from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.program import Op, StableProgram, makers
from parity.prove.numbering import users

PLACES = frozenset({"sdy.sharding_constraint", "annotate_device_placement"})
"""Operations, and calls of the backend, that return their operand on other devices or in another memory."""


def increment(program: StableProgram, argument: int, result: int) -> tuple[int, tuple[str, ...]] | None:
    """Returns the number that a result adds to an argument, if the argument has no other use.

    Signed and unsigned sums wrap in the same way. Therefore two counters of equal width that start from the same bits
    and count up by the same number always have the same bits.

    Returns:
        The number, and the placements of the sum and of the number as text; None if the argument, the sum or a placed
        sum has another use, or the result is not such a sum.
    """
    counter, value = program.body.parameters[argument], program.body.outputs[result]
    readers = users(program)
    made = makers(program)
    sum_of, places = _unplaced(made, value)
    op = made.get(sum_of[-1])
    if op is None or op.form.name != "stablehlo.add" or op.form.attributed:
        return None
    others = [each for each in op.operands if each != counter]
    if len(others) != 1 or any(len(readers[each]) != 1 for each in (counter, *sum_of)):
        return None
    constant, more = _unplaced(made, others[0])
    of = made.get(constant[-1])
    numbers = dense_numbers(of.source.operation) if of and set(of.form.attributes) == {"value"} else ()
    return (int(numbers[0]), (*places, *more)) if numbers else None


def _unplaced(made: dict[int, Op], value: int) -> tuple[list[int], list[str]]:
    """Returns a value, the values that it places, innermost last, and the placements as text."""
    values, places = [value], []
    while (op := made.get(values[-1])) is not None:
        target = getattr(op.form.attributes.get("call_target_name"), "value", op.form.name)
        if target not in PLACES:
            break
        places.append(f"{target} {sorted((name, str(text)) for name, text in op.form.attributes.items())}")
        values.append(op.operands[0])
    return values, places
