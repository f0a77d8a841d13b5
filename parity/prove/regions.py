"""The operations of a program with those inside them, and what reads each value."""

import collections
from collections.abc import Iterator

from parity.ir.stablehlo.program import Op, Region, StableProgram

__all__ = ["operations", "users"]


def operations(region: Region) -> Iterator[Op]:
    """Yields the operations of a region and those inside them."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from operations(inner)


def users(program: StableProgram) -> dict[int, list[tuple[Op | None, int]]]:
    """Returns what reads each value, and as which operand; None for a region that returns it."""
    found: dict[int, list[tuple[Op | None, int]]] = collections.defaultdict(list)
    for value in program.body.outputs:
        found[value].append((None, 0))
    for each in operations(program.body):
        if each.live is not None:
            for place, value in enumerate(each.operands):
                found[value].append((each, place))
            for value in (value for region in each.regions for value in region.outputs):
                found[value].append((None, 0))
    return found
