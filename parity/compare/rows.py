"""Loop trees, collectives, dtypes, memory as plain rows, for tables that others print."""

import collections
from collections.abc import Sequence

from parity.ir.hlo.collectives import Collective
from parity.ir.hlo.memory import QUANTITIES, Memory
from parity.ir.hlo.model import LoopTree
from parity.ir.stablehlo.dtypes import TypedOp

__all__ = ["Row", "collective_rows", "dtype_rows", "loop_rows", "memory_rows"]

Row = dict[str, str | int | None]
"""One line of a table by column; None is a number that is not known."""


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
        Columns kind, dtype, bytes, group, times, count, total_bytes, where (loop or outside), direction,
        source.
    """
    groups: dict[tuple, list[Collective]] = collections.defaultdict(list)
    for one in collectives:
        place = f"{one.provenance.file}:{one.provenance.line}"
        groups[
            one.kind, one.dtype, one.bytes, one.group, one.times, one.depth > 0, one.provenance.tags[0], place
        ].append(one)
    rows: list[Row] = []
    for (kind, dtype, size, group, times, inside, direction, place), members in groups.items():
        rows.append(
            {
                "kind": kind,
                "dtype": dtype,
                "bytes": size,
                "group": group,
                "times": times,
                "count": len(members),
                "total_bytes": None if times is None else size * times * len(members),
                "where": "loop" if inside else "outside",
                "direction": direction,
                "source": place,
            }
        )
    return sorted(rows, key=lambda row: -int(row["total_bytes"] or 0))


def dtype_rows(operations: Sequence[TypedOp]) -> list[Row]:
    """Returns one row per kind, types and source line.

    Returns:
        Columns kind, types, count, loops, direction, function, source.
    """
    counts = collections.Counter(
        (
            one.kind,
            one.types,
            one.loops,
            one.provenance.tags[0],
            one.provenance.function,
            one.provenance.file,
            one.provenance.line,
        )
        for one in operations
    )
    return [
        {
            "kind": kind,
            "types": types,
            "count": count,
            "loops": loops,
            "direction": direction,
            "function": function,
            "source": f"{file}:{line}",
        }
        for (kind, types, loops, direction, function, file, line), count in counts.items()
    ]


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
