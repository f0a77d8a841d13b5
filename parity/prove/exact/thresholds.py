"""Discontinuous functions of rounded values: exact numbers do not show the side of a threshold on which a float is."""

import dataclasses
from collections.abc import Sequence

from parity.ir.stablehlo.operations import OPERATIONS, Group, facts, names_of
from parity.ir.stablehlo.program import combiner
from parity.prove.exact.algebra import Algebra, Number
from parity.prove.exact.contents import Step
from parity.prove.exact.operations import direction
from parity.prove.exact.scalars import fits, holds, is_signed, widens, width
from parity.prove.exact.tensors import Floats, Tensor
from parity.prove.exact.terms import REAL, RefusalError
from parity.prove.rules.types import is_whole_number

SNAPS = names_of("ceil", "floor", "round_nearest_afz", "round_nearest_even", "sign")
"""Functions that return whole numbers."""
CHOICES = frozenset(each.name for each in OPERATIONS.values() if each.chooses)
MOVES = CHOICES | names_of(Group.REARRANGES, Group.PICKS, Group.JOINS, "bitcast_convert", "constant")
"""Operations whose result floats are floats of their operands."""
KEEPS = MOVES | SNAPS | names_of("abs", "negate")
"""Operations that do not round."""
CORRECT = names_of("add", "convert", "divide", "multiply", "subtract")
"""Operations that return the exact result if the element type holds it."""
KEEP_SIGN = MOVES | names_of("add", "convert", "divide", "dot_general", "multiply", "reduce", "scatter")
"""Operations whose floats are nonnegative if those of the operands are."""


def judged(algebra: Algebra, step: Step, operands: Sequence[Tensor], results: list[Tensor]) -> list[Tensor]:
    """Returns the results of an operation with the known properties of their floats.

    A jump at operands that may have been rounded is recorded in ``algebra.thresholds`` as an assumption, which is
    printed.
    """
    if facts(step.name).group is Group.SAME:
        return results
    short, reals = facts(step.name).short, [x for x in operands if x.sort == REAL]
    exact = all(x.floats is Floats.EXACT for x in reals)
    if not exact and _jumps(algebra, step, operands):
        if all(_values(algebra, x) for x in reals):
            raise RefusalError(
                f"{short}: got a constant that was rounded, which may take it across a threshold"
            )
        algebra.thresholds[f"rounding takes no operand of {short} across a threshold at {step.place}"] = None
    if REAL not in step.sorts:
        return results
    floats = Floats.ROUNDED
    if step.name in SNAPS or (exact and _is_exact(algebra, step, operands, results)):
        floats = Floats.EXACT
    elif facts(step.name).sign or (
        step.name in KEEP_SIGN and all(_is_not_negative(algebra, x) for x in reals or operands)
    ):
        floats = Floats.SIGN
    return [dataclasses.replace(x, floats=floats) if x.sort == REAL else x for x in results]


def _jumps(algebra: Algebra, step: Step, operands: Sequence[Tensor]) -> bool:
    """True if an operation is discontinuous in its operands, whose floats may have been rounded."""
    if step.name == "stablehlo.compare" and operands[0].sort == REAL:
        left, right = operands
        of_sign = direction(step) in ("GE", "LT")
        sure = of_sign and left.floats is Floats.SIGN and _values(algebra, right) == [0]
        return not sure and step.operands[0] != step.operands[1]  # `x != x` finds NaN
    between_floats = step.name == "stablehlo.convert" and step.sorts[0] == REAL
    return facts(step.name).jumps and operands[0].sort == REAL and not between_floats


def _is_exact(algebra: Algebra, step: Step, operands: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """True if an operation does not round, given that its operands were not rounded."""
    if step.name in KEEPS:
        return True
    if step.name == "stablehlo.reduce":
        return combiner(step.op.regions[0]) in CHOICES
    if step.name == "stablehlo.iota":
        return fits(step.shapes[0][step.dims("iota_dimension")[0]], step.element)
    if step.name == "stablehlo.convert":
        source = str(step.op.source.operands[0].type.element_type)
        fit = (
            fits(1 << width(source), step.element)
            if is_whole_number(source)
            else widens(source, step.element)
        )
        if fit:
            return True
    if step.name not in CORRECT:
        return False
    (made,) = results
    if step.name != "stablehlo.convert" and any(x.cells.tobytes() == made.cells.tobytes() for x in operands):
        return True  # a sum with zero, a product with one
    values = _values(algebra, made)
    if values:
        return all(holds(value, step.element) for value in values)
    return all(map(algebra.definedness.is_fraction, _terms(algebra, made)))  # random, from bits from 1 to 2


def _is_not_negative(algebra: Algebra, x: Tensor) -> bool:
    """True if neither the numbers of a tensor nor the program's floats for them can be negative."""
    if x.sort != REAL:
        return x.sort == "i1" or not is_signed(x.sort)
    if x.floats is not Floats.EXACT:
        return x.floats is Floats.SIGN
    return all(map(algebra.definedness.sign, _terms(algebra, x)))


def _terms(algebra: Algebra, x: Tensor) -> set[int]:
    return {algebra.terms.term(cell) for cell in x.cells.ravel().tolist()}


def _values(algebra: Algebra, x: Tensor) -> list[Number]:
    """Returns the constants in the cells of a tensor; empty if one is not a constant."""
    values = [algebra.value(cell) for cell in set(x.cells.ravel().tolist())]
    return [] if None in values else [value for value in values if value is not None]
