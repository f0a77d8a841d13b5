"""The structure of both sides of a case in paired rows: loops, collectives, memory, cost, dots."""

import collections
import dataclasses
import difflib
import itertools
from collections.abc import Iterator, Sequence

from parity.compare.evidence import Evidence
from parity.compare.rows import Row, collective_rows, dot_rows, dtype_rows, loop_rows, memory_rows
from parity.compare.side import Side
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.model import LoopTree
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.ir.stablehlo.lowered import lowered_loops

__all__ = ["Section", "inspect_sides"]

BEFORE, AFTER = "before optimisation", "after optimisation"
COST = ("flops", "bytes_accessed")
OPERATION = ("operation", "types", "direction")

Pair = tuple[Row | None, Row | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
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
    rows: tuple[Pair, ...]
    note: str = ""


def inspect_sides(evidence: Evidence) -> tuple[Section, ...]:
    """Compiles both sides, proved or not, and reads them.

    Args:
        evidence: the case.

    Raises:
        SideError: a side does not compile or cannot be read.
    """
    sides = evidence.compiling()
    return (*_loops(sides), _collectives(sides), *_memory_and_cost(sides), *_dots(sides))


def _align(sides: Sequence[Sequence[Row]], keys: Sequence[str]) -> tuple[Pair, ...]:
    """Pairs rows of equal keys in order."""
    left, right = sides
    marks = [[tuple(row[key] for key in keys) for row in rows] for rows in sides]
    pairs: list[Pair] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *marks, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += zip(left[a:b], right[c:d], strict=True)
        else:
            pairs += [(row, None) for row in left[a:b]] + [(None, row) for row in right[c:d]]
    return tuple(pairs)


def _by_key(sides: Sequence[Sequence[Row]], keys: Sequence[str]) -> tuple[Pair, ...]:
    """Pairs rows of equal keys in any order."""
    held: list[dict[tuple, list[Row]]] = [collections.defaultdict(list), collections.defaultdict(list)]
    for groups, rows in zip(held, sides, strict=True):
        for row in rows:
            groups[tuple(row[key] for key in keys)].append(row)
    return tuple(
        pair
        for key in dict.fromkeys((*held[0], *held[1]))
        for pair in itertools.zip_longest(held[0].get(key, ()), held[1].get(key, ()))
    )


def _loops(sides: tuple[Side, Side]) -> Iterator[Section]:
    numbers = ("trips", "carries", "carry_bytes")
    lowered = [lowered_loops(side.functions) for side in sides]
    yield _loop_section(BEFORE, lowered, (*numbers, "stacked_bytes"))
    left, right = optimised = [optimised_loops(side.optimised) for side in sides]
    yield _loop_section(AFTER, optimised, numbers, f"; fusions {left.fusions:,} and {right.fusions:,}")


def _loop_section(stage: str, trees: Sequence[LoopTree], numbers: tuple[str, ...], more: str = "") -> Section:
    rows: list[list[Row]] = [
        [{**row, "loop": _loop(row), "at": _place(str(row["source"]))} for row in loop_rows(tree)]
        for tree in trees
    ]
    pairs = _align(rows, ("depth", "direction", "label", "trips"))
    note = f"{trees[0].count} and {trees[1].count} loops{more}"
    return Section(title=f"loops, {stage}", labels=("loop", "at"), numbers=numbers, rows=pairs, note=note)


def _loop(row: Row) -> str:
    words = " ".join(filter(None, (str(row["direction"]), str(row["label"] or ""))))
    return f"{'  ' * int(row['depth'] or 0)}{row['path']} {words}"


def _place(source: str) -> str:
    return source.rsplit("/", 1)[-1] if source != ":0" else "unknown"


def _collectives(sides: tuple[Side, Side]) -> Section:
    rows = [collective_rows(read_collectives(side.optimised)) for side in sides]
    labels = ("kind", "dtype", "bytes", "group", "times", "direction")
    totals = [sum(int(row["total_bytes"] or 0) for row in side) for side in rows]
    unknown = sum(row["times"] is None for side in rows for row in side)
    return Section(
        title=f"collectives, {AFTER}",
        labels=labels,
        numbers=("count", "total_bytes"),
        rows=_by_key(rows, (*labels, "where")),
        note=f"{totals[0]:,} and {totals[1]:,} bytes moved per device"
        + (f"; {unknown} rows with unknown trips are not in it" if unknown else ""),
    )


def _memory_and_cost(sides: tuple[Side, Side]) -> Iterator[Section]:
    rows = [memory_rows(read_memory(side.compiled)) for side in sides]
    cycles = [read_cycles(side.optimised) for side in sides]
    memory = [[row for row in held if row["quantity"] not in COST] for held in rows]
    cost: list[list[Row]] = [
        [
            *(row for row in held if row["quantity"] in COST),
            {"quantity": "estimated cycles", "unit": "x trips", "value": one.total},
            {"quantity": "of them in loops", "unit": "x trips", "value": one.in_loops},
        ]
        for held, one in zip(rows, cycles, strict=True)
    ]
    reasons = dict.fromkeys(f"no cycles: {one.reason}" for one in cycles if one.reason)
    note = "; ".join(("flops and bytes_accessed count a loop's body once", *reasons))
    for title, held, words in (("memory per device", memory, ""), ("cost", cost, note)):
        pairs = _align(held, ("quantity",))
        labels = ("quantity", "unit")
        yield Section(title=f"{title}, {AFTER}", labels=labels, numbers=("value",), rows=pairs, note=words)


def _dots(sides: tuple[Side, Side]) -> Iterator[Section]:
    note = "a dot may have become a convolution or a library call"
    lowered = [dtype_rows(read_dtypes(side.functions)) for side in sides]
    optimised = [dot_rows(side.optimised) for side in sides]
    for title, rows, words in (
        (f"dots, sums and roots, {BEFORE}", lowered, ""),
        (f"dots, {AFTER}", optimised, note),
    ):
        pairs = _by_key(rows, OPERATION)
        yield Section(title=title, labels=OPERATION, numbers=("count",), rows=pairs, note=words)
