"""Readers of each value of a program."""

import collections

from parity.ir.stablehlo.program import Op, StableProgram

__all__ = ["users"]


def users(program: StableProgram) -> dict[int, list[tuple[Op | None, int]]]:
    """Returns the readers of each value with the operand's position; None for a region that returns it."""
    found: dict[int, list[tuple[Op | None, int]]] = collections.defaultdict(list)
    for value in program.body.outputs:
        found[value].append((None, 0))
    for each in program.body.walk():
        if each.live is not None:
            for place, value in enumerate(each.operands):
                found[value].append((each, place))
            for value in (value for region in each.regions for value in region.outputs):
                found[value].append((None, 0))
    return found
