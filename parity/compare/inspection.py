"""The structure of both sides: rows of loops, collectives and memory, paired, and in one line each."""

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.ir.hlo.collectives import Collective, read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.memory import QUANTITIES, Memory, read_memory
from parity.ir.hlo.model import LoopTree
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.stablehlo.lowered import lowered_loops

Row = dict[str, str | int | None]
"""One line of a table by column; None is an unknown number."""

AFTER = "after optimisation"
COST = ("flops", "bytes_accessed")
COLLECTIVE = ("kind", "dtype", "bytes", "group", "times", "direction")
"""Columns that distinguish collectives, as does ``where``."""


class Section(NamedTuple):
    """One aspect of both sides.

    Args:
        title: the aspect, and before or after optimisation.
        labels: columns that identify a row.
        numbers: columns that are compared.
        rows: (reference, candidate); None if a side has no such row.
        note: a hint for the reader; may be empty.
    """

    title: str
    labels: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[tuple[Row | None, Row | None], ...]
    note: str = ""


def loop_rows(tree: LoopTree) -> list[Row]:
    """Returns one row per loop, outer before inner; ``runs`` are those of the loop as a whole."""
    return [
        {
            "stage": tree.stage,
            "path": path,
            "depth": path.count("."),
            "trips": loop.trips,
            "runs": times,
            "carries": loop.carries,
            "carry_bytes": loop.carry_bytes,
            "stacked_bytes": sum(leaf.bytes for leaf in loop.stacked),
            "label": loop.provenance.label,
            "direction": loop.provenance.tags[0],
            "function": loop.provenance.frame.function,
            "source": f"{loop.provenance.frame.file}:{loop.provenance.frame.line}",
            "name": loop.provenance.stack,
        }
        for path, times, loop in tree.walk()
    ]


def collective_rows(collectives: Sequence[Collective]) -> list[Row]:
    """Returns one row per kind of collective, the most bytes first; ``where`` is ``loop`` or ``outside``."""
    rows: dict[tuple[Any, ...], Row] = {}
    for one in collectives:
        row = {name: getattr(one, name) for name in COLLECTIVE[:-1]} | {"direction": one.provenance.tags[0]}
        row["where"] = "loop" if one.depth else "outside"
        row = rows.setdefault(tuple(row.values()), {**row, "count": 0, "total_bytes": None})
        row["count"] = count = int(row["count"] or 0) + 1
        row["total_bytes"] = None if one.total_bytes is None else one.total_bytes * count
    return sorted(rows.values(), key=lambda row: -int(row["total_bytes"] or 0))


def memory_rows(memory: Memory) -> list[Row]:
    """Returns one row per quantity; ``reason`` says why a value is None."""
    return [
        {
            "quantity": name,
            "value": memory.values.get(name),
            "unit": unit,
            "reason": memory.reasons.get(name, ""),
        }
        for name, unit in QUANTITIES.items()
    ]


def inspect_sides(evidence: Evidence) -> tuple[Section, ...]:
    """Compiles both sides, proved or not, and reads them.

    Raises:
        SideError: a side does not compile or cannot be read.
    """
    sides = evidence.compiling()
    return (*_loops(sides), _collectives(sides), *_memory_and_cost(sides))


def _align(sides: Sequence[Sequence[Row]], keys: Sequence[str]) -> Iterator[tuple[Row | None, Row | None]]:
    """Yields pairs of rows of equal keys, in order, and the rows without a partner."""
    left, right = sides
    marks = [[tuple(row[key] for key in keys) for row in rows] for rows in sides]
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *marks, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(left[a:b], right[c:d], strict=True)
        else:
            yield from [*((row, None) for row in left[a:b]), *((None, row) for row in right[c:d])]


def _loops(sides: tuple[Side, Side]) -> Iterator[Section]:
    left, right = optimised = [optimised_loops(side.optimised) for side in sides]
    fusions = f"; fusions {left.fusions:,} and {right.fusions:,}"
    numbers = ("trips", "carries", "carry_bytes")
    for stage, trees, shown, more in (
        (
            "before optimisation",
            [lowered_loops(side.operations) for side in sides],
            (*numbers, "stacked_bytes"),
            "",
        ),
        (AFTER, optimised, numbers, fusions),
    ):
        rows: list[list[Row]] = [
            [{**row, "loop": _loop(row), "at": _place(str(row["source"]))} for row in loop_rows(tree)]
            for tree in trees
        ]
        pairs = tuple(_align(rows, ("depth", "direction", "label", "trips")))
        note = f"{trees[0].count} and {trees[1].count} loops{more}"
        yield Section(f"loops, {stage}", ("loop", "at"), shown, pairs, note)


def _loop(row: Row) -> str:
    words = filter(None, (str(row["direction"]), str(row["label"] or "")))
    return f"{'  ' * int(row['depth'] or 0)}{row['path']} {' '.join(words)}"


def _place(source: str) -> str:
    return source.rsplit("/", 1)[-1] if source != ":0" else "unknown"


def _collectives(sides: tuple[Side, Side]) -> Section:
    keys = (*COLLECTIVE, "where")
    rows = [collective_rows(read_collectives(side.optimised)) for side in sides]
    left, right = ({tuple(row[key] for key in keys): row for row in side} for side in rows)
    pairs = tuple((left.get(key), right.get(key)) for key in dict.fromkeys((*left, *right)))
    totals = [sum(int(row["total_bytes"] or 0) for row in side) for side in rows]
    unknown = sum(row["times"] is None for side in rows for row in side)
    more = f"; {unknown} rows with unknown trips are not in it" if unknown else ""
    note = f"{totals[0]:,} and {totals[1]:,} bytes moved per device{more}"
    return Section(f"collectives, {AFTER}", COLLECTIVE, ("count", "total_bytes"), pairs, note)


def _memory_and_cost(sides: tuple[Side, Side]) -> Iterator[Section]:
    held = [memory_rows(read_memory(side.compiled)) for side in sides]
    cycles = [read_cycles(side.optimised) for side in sides]
    memory = [[row for row in rows if row["quantity"] not in COST] for rows in held]
    cost: list[list[Row]] = [
        [
            *(row for row in rows if row["quantity"] in COST),
            {"quantity": "estimated cycles", "unit": "x trips", "value": one.total},
            {"quantity": "of them in loops", "unit": "x trips", "value": one.in_loops},
        ]
        for rows, one in zip(held, cycles, strict=True)
    ]
    reasons = dict.fromkeys(f"no cycles: {one.reason}" for one in cycles if one.reason)
    note = "; ".join(("flops and bytes_accessed count a loop's body once", *reasons))
    for title, rows, words in (("memory per device", memory, ""), ("cost", cost, note)):
        pairs = tuple(_align(rows, ("quantity",)))
        yield Section(f"{title}, {AFTER}", ("quantity", "unit"), ("value",), pairs, words)


def summarise_case(evidence: Evidence) -> dict[str, Any]:
    """Compiles both sides, proved or not; returns their names and numbers as plain data.

    A number is None if the backend does not state it, and a side that does not compile has an ``error`` instead.
    """
    case = evidence.case
    for side in evidence.sides:
        with contextlib.suppress(SideError):  # reported when the side is read
            side.begin()
    backend, mesh = case.placement.backend, str(case.meshes[1])
    return {"id": case.id, "backend": backend, "mesh": mesh, "sides": [*map(_summary, evidence.sides)]}


def _summary(side: Side) -> dict[str, Any]:
    numbers, why = {}, ""
    try:
        numbers = _numbers(side)
    except SideError as error:
        why = f"{error.phase}: {(str(error.cause).splitlines() or [''])[0]}"
    return {"build": side.build.name, "flavour": str(side.build.flavour), "numbers": numbers, "error": why}


def _numbers(side: Side) -> dict[str, float | None]:
    """Returns the numbers of a side's line; moved bytes count with their trips."""
    collectives, memory = read_collectives(side.optimised), read_memory(side.compiled).values
    moved = [one.total_bytes for one in collectives]
    compilation = getattr(side.compiled, "compilation", None)
    return {
        "loops_lowered": lowered_loops(side.operations).count,
        "loops_optimised": optimised_loops(side.optimised).count,
        "collectives": len(collectives),
        "moved_bytes": None if None in moved else sum(size for size in moved if size is not None),
        "argument_bytes": memory["argument"],
        "temp_bytes": memory["temp"],
        "peak_bytes": memory["peak"],
        "cycles": read_cycles(side.optimised).total,
        "compile_seconds": compilation.seconds if compilation else None,
    }
