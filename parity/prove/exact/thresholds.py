"""Functions that jump, of rounded values: exact numbers do not show on which side of a threshold a float is."""

import dataclasses
from collections.abc import Sequence

from parity.prove.exact.algebra import Algebra, Number
from parity.prove.exact.contents import Step
from parity.prove.exact.floats import fits, holds
from parity.prove.exact.tensors import Floats, Tensor
from parity.prove.exact.terms import REAL, RefusalError
from parity.prove.rules.types import is_whole_number, widens

__all__ = ["judged"]

SNAPS = frozenset(("ceil", "floor", "round_nearest_afz", "round_nearest_even", "sign"))
"""Functions to whole numbers."""
JUMPS = SNAPS | {"compare", "convert", "remainder"}
"""Functions that are not continuous; a conversion is one if it leads to integers or booleans."""
MOVES = frozenset(
    (
        *(
            "bitcast_convert",
            "broadcast_in_dim",
            "concatenate",
            "constant",
            "dynamic_slice",
            "reverse",
            "select",
        ),
        *("dynamic_update_slice", "gather", "maximum", "minimum", "pad", "reshape", "slice", "transpose"),
    )
)
"""Operations whose floats are floats of their operands."""
KEEPS = MOVES | SNAPS | {"abs", "clamp", "negate"}
"""Operations that do not round."""
CORRECT = frozenset(("add", "convert", "divide", "multiply", "subtract"))
"""Operations that return the exact result if the element type holds it."""
NOT_NEGATIVE = frozenset(("abs", "exponential", "logistic", "sqrt"))
"""Functions whose floats are not negative."""
KEEP_SIGN = MOVES | {"add", "convert", "divide", "dot_general", "multiply", "reduce", "scatter"}
"""Operations whose floats are not negative if those of the operands are not."""


def judged(algebra: Algebra, step: Step, operands: Sequence[Tensor], results: list[Tensor]) -> list[Tensor]:
    """Returns the results of an operation with what is known of their floats.

    A jump of operands that may have been rounded goes into ``algebra.thresholds``, an assumption that is printed.

    Args:
        algebra: of the tensors.
        step: the operation.
        operands, results: of the operation.

    Raises:
        RefusalError: such operands are constants; then rounding decides, and nothing is left to assume.
    """
    name = step.name.partition(".")[2]
    if name == "optimization_barrier":
        return results
    reals = [x for x in operands if x.sort == REAL]
    exact = all(x.floats is Floats.EXACT for x in reals)
    if not exact and _jumps(algebra, name, step, operands):
        if all(_values(algebra, x) for x in reals):
            raise RefusalError(
                f"{name}: got a constant that was rounded, which may take it across a threshold"
            )
        algebra.thresholds[f"rounding takes no operand of {name} across a threshold at {step.place}"] = None
    if REAL not in step.sorts:
        return results
    floats = Floats.ROUNDED
    if name in SNAPS or (exact and _is_exact(algebra, name, step, operands, results)):
        floats = Floats.EXACT
    elif name in NOT_NEGATIVE or (name in KEEP_SIGN and all(_keeps_sign(algebra, x) for x in reals)):
        floats = Floats.SIGN
    return [dataclasses.replace(x, floats=floats) if x.sort == REAL else x for x in results]


def _jumps(algebra: Algebra, name: str, step: Step, operands: Sequence[Tensor]) -> bool:
    """True if an operation is no continuous function of its operands, all floats of which may have been rounded."""
    if name == "compare" and operands[0].sort == REAL:
        left, right = operands
        of_sign = step.text("comparison_direction").split()[-1].rstrip(">") in ("GE", "LT")
        sure = of_sign and left.floats is Floats.SIGN and _values(algebra, right) == [0]
        return not sure and step.operands[0] != step.operands[1]  # `x != x` finds NaN
    return name in JUMPS and operands[0].sort == REAL and (name != "convert" or step.sorts[0] != REAL)


def _is_exact(
    algebra: Algebra, name: str, step: Step, operands: Sequence[Tensor], results: Sequence[Tensor]
) -> bool:
    """True if an operation does not round, given that its operands were not rounded."""
    if name in KEEPS:
        return True
    if name == "reduce":
        return all(inner.name.partition(".")[2] in ("maximum", "minimum") for inner in step.blocks[0].steps)
    if name == "iota":
        return fits(step.shapes[0][step.dims("iota_dimension")[0]], step.element)
    if name == "convert":
        source = str(step.read.source.operands[0].type.element_type)
        whole = is_whole_number(source)
        if fits(1 << int(source.lstrip("ui")), step.element) if whole else widens(source, step.element):
            return True
    if name not in CORRECT:
        return False
    (made,) = results
    if name != "convert" and any(x.cells.tobytes() == made.cells.tobytes() for x in operands):
        return True  # a sum with zero, a product with one
    values = _values(algebra, made)
    return all(holds(value, step.element) for value in values) if values else _are_fractions(algebra, made)


def _are_fractions(algebra: Algebra, x: Tensor) -> bool:
    """True if all cells are random numbers from 0 to 1, made of the bits of those from 1 to 2."""
    return all(
        algebra.definedness.is_fraction(algebra.terms.term(cell)) for cell in set(x.cells.ravel().tolist())
    )


def _keeps_sign(algebra: Algebra, x: Tensor) -> bool:
    if x.floats is not Floats.EXACT:
        return x.floats is Floats.SIGN
    return all(algebra.definedness.sign(algebra.terms.term(cell)) for cell in set(x.cells.ravel().tolist()))


def _values(algebra: Algebra, x: Tensor) -> list[Number]:
    """Returns the constants that the cells of a tensor are; empty if one is no constant."""
    values = [algebra.value(cell) for cell in set(x.cells.ravel().tolist())]
    return [] if None in values else [value for value in values if value is not None]
