"""Tables of channels for graphical reports: rows of both sides, small enough for every record."""

from collections.abc import Sequence

from parity.builds.tree import Role
from parity.builds.weights.map import WeightMap
from parity.compare.inspection import loop_rows
from parity.compare.layout import Placed, placed
from parity.compare.side import Side
from parity.ir.hlo.collectives import Collective
from parity.ir.hlo.memory import Memory
from parity.ir.hlo.model import LoopTree
from parity.verdicts import Row, grouped

MOST_LOOPS = 80
"""Maximum number of loops of one program in a table; larger trees are cut, as a picture of them is unreadable."""


def memory_table(reference: Memory, candidate: Memory) -> list[Row]:
    """Returns one row for each quantity that a side states."""
    values = reference.values, candidate.values
    return [
        {"quantity": name, "reference": values[0].get(name), "candidate": values[1].get(name)}
        for name in dict.fromkeys((*values[0], *values[1]))
        if any(side.get(name) is not None for side in values)
    ]


def collective_table(reference: Sequence[Collective], candidate: Sequence[Collective]) -> list[Row]:
    """Returns one row for each kind: the bytes each side moves with it, trips included, and the number of collectives.

    Bytes are None if the trip count around a collective is unknown.
    """
    rows: list[Row] = []
    for kind in sorted({one.kind for one in (*reference, *candidate)}):
        left, right = (
            [one.total_bytes for one in side if one.kind == kind] for side in (reference, candidate)
        )
        rows.append(
            {
                "quantity": kind,
                "reference": _total(left),
                "candidate": _total(right),
                "reference_count": len(left),
                "candidate_count": len(right),
            }
        )
    return rows


def _total(sizes: Sequence[int | None]) -> int | None:
    return None if None in sizes else sum(size or 0 for size in sizes)


def loop_table(reference: LoopTree, candidate: LoopTree) -> list[Row]:
    """Returns one row for each loop of both sides, outer before inner; the side is the first column."""
    return [
        {
            "side": side,
            **{key: row[key] for key in ("stage", "path", "depth", "trips", "carries", "carry_bytes")},
            "source": f"{str(row['source']).rpartition('/')[2]} {row['function'] or ''}".strip(),
        }
        for side, tree in (("reference", reference), ("candidate", candidate))
        for row in loop_rows(tree)[:MOST_LOOPS]
    ]


def map_table(weights: WeightMap) -> list[Row]:
    """Returns one row for each way of pairing and transforming leaves, with its first leaf as the example."""
    groups = grouped(weights.entries, lambda one: (str(one.role), one.matched_by, str(one.transform)))
    return [
        {
            "role": role,
            "matched by": how,
            "transform": transform,
            "leaves": len(entries),
            "reference": " + ".join(entries[0].reference),
            "candidate": " + ".join(entries[0].candidate),
        }
        for (role, how, transform), entries in groups.items()
    ]


def spec_table(reference: Side, candidate: Side, weights: WeightMap) -> list[Row]:
    """Returns one row for each way of splitting leaves over the mesh, with a large parameter as the example.

    Args:
        weights: pairs the leaves; if several leaves map to one, the first represents all.
    """
    pairs = [
        (placed(reference, entry.reference[0]), placed(candidate, entry.candidate[0]))
        for entry in weights.entries
    ]
    groups = grouped(pairs, lambda pair: (*_cut(pair[0]), *_cut(pair[1])))

    def held(leaves: Sequence[tuple[Placed, Placed]]) -> int:
        return sum(left.bytes_per_device for left, _ in leaves)

    rows: list[Row] = []
    for (cut, axes, other, other_axes), leaves in sorted(groups.items(), key=lambda one: -held(one[1])):
        largest = max(leaves, key=lambda pair: (pair[0].leaf.role is Role.PARAMS, pair[0].bytes_per_device))
        rows.append(
            {
                "roles": ", ".join(sorted({str(one.leaf.role) for one, _ in leaves})),
                "leaves": len(leaves),
                "leaf": largest[0].leaf.path,
                "shape": "x".join(map(str, largest[0].leaf.shape)) or "scalar",
                "reference": cut,
                "reference_axes": axes,
                "candidate": other,
                "candidate_axes": other_axes,
                "bytes": held(leaves),
            }
        )
    return rows


def _cut(one: Placed) -> tuple[str, str]:
    """Returns mesh axes and logical axes by dimension, ``fsdp+data,,tensor``; empty if the leaf is not split."""
    if not any(one.axes):
        return "", ""
    named = one.leaf.logical_axes or ("",) * len(one.leaf.shape)
    return ",".join("+".join(axes) for axes in one.axes), ",".join(name or "" for name in named)
