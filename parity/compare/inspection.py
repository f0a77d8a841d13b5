"""What both sides of a case are made of, row beside row: loops, collectives, memory, cost, dots."""

import collections
import dataclasses
import difflib
import itertools
from collections.abc import Sequence

from parity.compare.comparison import Comparison
from parity.compare.rows import Row, collective_rows, dtype_rows, loop_rows, memory_rows
from parity.compare.side import Side
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.hlo import HloModule
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.hlo.visits import visits
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.ir.stablehlo.lowered import lowered_loops

__all__ = ["Section", "inspect_sides"]

BEFORE, AFTER = "before optimisation", "after optimisation"
COST = ("flops", "bytes_accessed")
PRODUCTS = ("dot", "convolution")

Pair = tuple[Row | None, Row | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One aspect of both sides.

    Args:
        title: what it shows, and before or after optimisation.
        labels: columns that say what a row is.
        numbers: columns that are compared.
        rows: (reference, candidate); None where a side has no such row.
        note: what a reader must know; empty when nothing.
    """

    title: str
    labels: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[Pair, ...]
    note: str = ""


def inspect_sides(work: Comparison) -> tuple[Section, ...]:
    """Compiles both sides, proved or not, and reads them.

    Args:
        work: the case.

    Raises:
        SideError: a side does not compile or cannot be read.
    """
    sides = work.compiling
    return (
        _loops(BEFORE, sides),
        _loops(AFTER, sides),
        _collectives(sides),
        _memory(sides),
        _cost(sides),
        _lowered_dots(sides),
        _optimised_dots(sides),
    )


def _align(sides: Sequence[Sequence[Row]], keys: Sequence[str]) -> tuple[Pair, ...]:
    """Puts rows beside each other in order, where their keys are equal."""
    ours, theirs = sides
    marks = [[tuple(row[key] for key in keys) for row in rows] for rows in sides]
    pairs: list[Pair] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *marks, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += zip(ours[a:b], theirs[c:d], strict=True)
        else:
            pairs += [(row, None) for row in ours[a:b]] + [(None, row) for row in theirs[c:d]]
    return tuple(pairs)


def _by_key(sides: Sequence[Sequence[Row]], keys: Sequence[str]) -> tuple[Pair, ...]:
    """Puts rows with equal keys beside each other, whatever their order."""
    held: list[dict[tuple, list[Row]]] = [collections.defaultdict(list), collections.defaultdict(list)]
    for groups, rows in zip(held, sides, strict=True):
        for row in rows:
            groups[tuple(row[key] for key in keys)].append(row)
    return tuple(
        pair
        for key in dict.fromkeys((*held[0], *held[1]))
        for pair in itertools.zip_longest(held[0].get(key, ()), held[1].get(key, ()))
    )


def _loops(stage: str, sides: tuple[Side, Side]) -> Section:
    trees = [
        lowered_loops(side.functions) if stage == BEFORE else optimised_loops(side.optimised)
        for side in sides
    ]
    rows: list[list[Row]] = []
    for tree in trees:
        rows.append([])
        for row in loop_rows(tree):
            words = " ".join(filter(None, (str(row["direction"]), str(row["label"] or ""))))
            loop = f"{'  ' * int(row['depth'] or 0)}{row['path']} {words}"
            rows[-1].append({**row, "loop": loop, "at": _place(str(row["source"]))})
    numbers = ("trips", "carries", "carry_bytes", *(("stacked_bytes",) if stage == BEFORE else ()))
    pairs = _align(rows, ("depth", "direction", "label", "trips"))
    fusions = "" if stage == BEFORE else f"; fusions {trees[0].fusions:,} and {trees[1].fusions:,}"
    note = f"{trees[0].count} and {trees[1].count} loops{fusions}"
    return Section(title=f"loops, {stage}", labels=("loop", "at"), numbers=numbers, rows=pairs, note=note)


def _place(source: str) -> str:
    return source.rsplit("/", 1)[-1] if source != ":0" else "unknown"


def _collectives(sides: tuple[Side, Side]) -> Section:
    rows: list[list[Row]] = []
    for side in sides:
        counts: dict[tuple, Row] = {}
        for row in collective_rows(read_collectives(side.optimised)):
            key = tuple(
                row[name] for name in ("kind", "dtype", "bytes", "group", "times", "where", "direction")
            )
            if key in counts:
                counts[key]["count"] = int(counts[key]["count"] or 0) + int(row["count"] or 0)
                if (held := counts[key]["total_bytes"]) is not None:
                    counts[key]["total_bytes"] = int(held) + int(row["total_bytes"] or 0)
            else:
                counts[key] = dict(row)
        rows.append(list(counts.values()))
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


def _memory(sides: tuple[Side, Side]) -> Section:
    rows = [
        [row for row in memory_rows(read_memory(side.compiled)) if row["quantity"] not in COST]
        for side in sides
    ]
    title = f"memory per device, {AFTER}"
    pairs = _align(rows, ("quantity",))
    return Section(title=title, labels=("quantity", "unit"), numbers=("value",), rows=pairs)


def _cost(sides: tuple[Side, Side]) -> Section:
    rows: list[list[Row]] = []
    reasons: dict[str, None] = {}
    for side in sides:
        rows.append([row for row in memory_rows(read_memory(side.compiled)) if row["quantity"] in COST])
        cycles = read_cycles(side.optimised)
        rows[-1] += [
            {"quantity": "estimated cycles", "unit": "x trips", "value": cycles.total},
            {"quantity": "of them in loops", "unit": "x trips", "value": cycles.in_loops},
        ]
        reasons |= {f"no cycles: {cycles.reason}": None} if cycles.reason else {}
    note = "; ".join(("flops and bytes_accessed count a loop's body once", *reasons))
    pairs = _align(rows, ("quantity",))
    labels = ("quantity", "unit")
    return Section(title=f"cost, {AFTER}", labels=labels, numbers=("value",), rows=pairs, note=note)


def _lowered_dots(sides: tuple[Side, Side]) -> Section:
    counted = [collections.Counter[tuple]() for _ in sides]
    for counts, side in zip(counted, sides, strict=True):
        for row in dtype_rows(read_dtypes(side.functions)):
            counts[row["kind"], row["types"], row["direction"]] += int(row["count"] or 0)
    return _counts(f"dots, sums and roots, {BEFORE}", ("operation", "types", "direction"), counted)


def _optimised_dots(sides: tuple[Side, Side]) -> Section:
    counted = [_products(side.optimised) for side in sides]
    section = _counts(f"dots, {AFTER}", ("operation", "types", "direction"), counted)
    return dataclasses.replace(section, note="a dot may have become a convolution or a library call")


def _products(module: HloModule) -> collections.Counter[tuple]:
    found: collections.Counter[tuple] = collections.Counter()
    for visit in visits(module):
        one = visit.instruction
        if one.opcode in PRODUCTS:
            taken = " x ".join(visit.computation.by_name[name].shape.element for name in one.operands)
            direction = module.provenance(one, visit.caller).tags[0]
            found[one.opcode, f"{taken} -> {one.shape.element}", direction] += 1
    return found


def _counts(
    title: str, labels: tuple[str, str, str], counted: Sequence[collections.Counter[tuple]]
) -> Section:
    rows: list[list[Row]] = [
        [{**dict(zip(labels, key, strict=True)), "count": number} for key, number in sorted(counts.items())]
        for counts in counted
    ]
    return Section(title=title, labels=labels, numbers=("count",), rows=_by_key(rows, labels))
