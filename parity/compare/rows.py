"""Loops, collectives, dots and memory of one side as plain rows, for records and tables."""

import collections
from collections.abc import Iterable, Sequence

from parity.ir.hlo.collectives import Collective
from parity.ir.hlo.hlo import HloModule
from parity.ir.hlo.memory import QUANTITIES, Memory
from parity.ir.hlo.model import LoopTree
from parity.ir.hlo.optimised import visits
from parity.ir.stablehlo.dtypes import TypedOp

__all__ = ["Row", "collective_rows", "dot_rows", "dtype_rows", "loop_rows", "memory_rows"]

Row = dict[str, str | int | None]
"""One line of a table by column; None is an unknown number."""

COLLECTIVE = ("kind", "dtype", "bytes", "group", "times", "where", "direction")
OPERATION = ("operation", "types", "direction")
PRODUCTS = ("dot", "convolution")


def loop_rows(tree: LoopTree) -> list[Row]:
    """Returns one row per loop, outer before inner.

    Args:
        tree: a lowered or optimised loop tree.

    Returns:
        Columns stage, path, depth, trips, runs (of the loop as a whole), carries, carry_bytes, stacked_bytes,
        passthrough_bytes, label, direction, function, source, name.
    """
    return [
        {
            "stage": tree.stage,
            "path": place.path,
            "depth": place.depth,
            "trips": place.loop.trips,
            "runs": place.times,
            "carries": place.loop.carries,
            "carry_bytes": place.loop.carry_bytes,
            "stacked_bytes": sum(leaf.bytes for leaf in place.loop.stacked),
            "passthrough_bytes": sum(leaf.bytes for leaf in place.loop.passthrough),
            "label": place.loop.provenance.label,
            "direction": place.loop.provenance.tags[0],
            "function": place.loop.provenance.function,
            "source": f"{place.loop.provenance.file}:{place.loop.provenance.line}",
            "name": place.loop.provenance.stack,
        }
        for place in tree.walk()
    ]


def collective_rows(collectives: Sequence[Collective]) -> list[Row]:
    """Returns one row per kind of collective, the most bytes first.

    Returns:
        Columns kind, dtype, bytes, group, times, where (loop or outside), direction, count, total_bytes.
    """
    counts = collections.Counter(
        (
            one.kind,
            one.dtype,
            one.bytes,
            one.group,
            one.times,
            "loop" if one.depth else "outside",
            one.provenance.tags[0],
            one.total_bytes,
        )
        for one in collectives
    )
    rows: list[Row] = [
        {
            **dict(zip(COLLECTIVE, key, strict=True)),
            "count": count,
            "total_bytes": None if each is None else each * count,
        }
        for (*key, each), count in counts.items()
    ]
    return sorted(rows, key=lambda row: -int(row["total_bytes"] or 0))


def dtype_rows(operations: Sequence[TypedOp]) -> list[Row]:
    """Returns one row per kind, types and direction of a lowered program's dots, sums and roots.

    Returns:
        Columns operation, types, direction, count.
    """
    return _counted(OPERATION, sorted((one.kind, one.types, one.provenance.tags[0]) for one in operations))


def dot_rows(module: HloModule) -> list[Row]:
    """Returns one row per kind, types and direction of an optimised program's dots.

    Returns:
        Columns operation, types, direction, count.
    """
    found = []
    for visit in visits(module):
        one = visit.instruction
        if one.opcode in PRODUCTS:
            taken = " x ".join(visit.computation.by_name[name].shape.element for name in one.operands)
            direction = module.provenance(one, visit.caller).tags[0]
            found.append((one.opcode, f"{taken} -> {one.shape.element}", direction))
    return _counted(OPERATION, sorted(found))


def memory_rows(memory: Memory) -> list[Row]:
    """Returns one row per quantity.

    Returns:
        Columns quantity, value, unit, reason (why the value is None).
    """
    return [
        {
            "quantity": quantity,
            "value": memory.values.get(quantity),
            "unit": unit,
            "reason": memory.reasons.get(quantity, ""),
        }
        for quantity, unit in QUANTITIES.items()
    ]


def _counted(columns: Sequence[str], keys: Iterable[tuple]) -> list[Row]:
    """Returns a row with the count of each key, in order of first occurrence."""
    return [
        {**dict(zip(columns, key, strict=True)), "count": count}
        for key, count in collections.Counter(keys).items()
    ]
