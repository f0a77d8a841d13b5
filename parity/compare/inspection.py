"""The structure of both sides: rows of loops, collectives and memory, paired, and in one line each."""

import collections
import contextlib
import dataclasses
import difflib
import itertools
from collections.abc import Iterator, Sequence

from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.ir.hlo.collectives import Collective, read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.memory import QUANTITIES, Memory, read_memory
from parity.ir.hlo.model import LoopTree
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.stablehlo.lowered import lowered_loops

__all__ = ["Row", "Section", "Summary", "inspect_sides", "loop_rows", "summarise_case"]

Row = dict[str, str | int | None]
"""One line of a table by column; None is an unknown number."""
Pair = tuple[Row | None, Row | None]

BEFORE, AFTER = "before optimisation", "after optimisation"
COST = ("flops", "bytes_accessed")
COLLECTIVE = ("kind", "dtype", "bytes", "group", "times", "where", "direction")


def loop_rows(tree: LoopTree) -> list[Row]:
    """Returns one row per loop, outer before inner.

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

    Raises:
        SideError: a side does not compile or cannot be read.
    """
    sides = evidence.compiling()
    return (*_loops(sides), _collectives(sides), *_memory_and_cost(sides))


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
    words = filter(None, (str(row["direction"]), str(row["label"] or "")))
    return f"{'  ' * int(row['depth'] or 0)}{row['path']} {' '.join(words)}"


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideSummary:
    """One side of a case.

    Args:
        build: its name.
        flavour: ``linen`` or ``nnx``.
        numbers: by name, bytes per device; None if the backend does not report it.
        error: why there are no numbers; empty if there are.
    """

    build: str
    flavour: str
    numbers: dict[str, float | None]
    error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Both sides of a case.

    Args:
        id: id of the case.
        backend: the backend it was compiled for.
        mesh: the mesh it was compiled for.
        sides: reference and candidate.
    """

    id: str
    backend: str
    mesh: str
    sides: tuple[SideSummary, SideSummary]

    def ratio(self, name: str) -> float | None:
        """Returns candidate over reference; None if one of them is unknown, or the reference is zero."""
        left, right = (side.numbers.get(name) for side in self.sides)
        return right / left if left and right is not None else None


def summarise_case(evidence: Evidence) -> Summary:
    """Compiles both sides, proved or not, and reads them; a side that does not compile has an error."""
    case = evidence.case
    for side in evidence.sides:
        with contextlib.suppress(SideError):  # reported when the side is read
            side.begin()
    return Summary(
        id=case.id,
        backend=case.placement.backend,
        mesh=str(case.meshes[1]),
        sides=(_summary(evidence.reference), _summary(evidence.candidate)),
    )


def _summary(side: Side) -> SideSummary:
    numbers, why = {}, ""
    try:
        numbers = _numbers(side)
    except SideError as error:
        why = f"{error.phase}: {(str(error.cause).splitlines() or [''])[0]}"
    return SideSummary(build=side.build.name, flavour=str(side.build.flavour), numbers=numbers, error=why)


def _numbers(side: Side) -> dict[str, float | None]:
    """Returns the numbers of a side's line; moved bytes count with their trips."""
    collectives, memory = read_collectives(side.optimised), read_memory(side.compiled).values
    moved = [None if one.times is None else one.bytes * one.times for one in collectives]
    compilation = getattr(side.compiled, "compilation", None)
    return {
        "loops_lowered": lowered_loops(side.functions).count,
        "loops_optimised": optimised_loops(side.optimised).count,
        "collectives": len(collectives),
        "moved_bytes": None if None in moved else sum(size for size in moved if size is not None),
        "argument_bytes": memory["argument"],
        "temp_bytes": memory["temp"],
        "peak_bytes": memory["peak"],
        "cycles": read_cycles(side.optimised).total,
        "compile_seconds": compilation.seconds if compilation else None,
    }
