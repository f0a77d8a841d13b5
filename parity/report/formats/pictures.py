"""Drawings for the page that its script cannot compute: sharded arrays on their meshes, each layout once."""

import colorsys
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from parity.builds.meshes import MeshSpec
from parity.report.reading import Record

__all__ = ["MOST_SHARDS", "Grid", "cut_up", "grids"]

MOST_SHARDS = 64
"""Maximum number of shards in a picture; for more, the picture is replaced by text."""


class Grid(NamedTuple):
    """An array split into shards.

    Args:
        across, down: the dimensions of columns and rows, and the mesh axes over which they are split.
        cells: rows of (devices, fill colour), one per shard.
    """

    across: str
    down: str
    cells: tuple[tuple[tuple[str, str], ...], ...]


def grids(cases: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Returns the layouts of leaves on the meshes of some cases, by ``mesh|cut|names``.

    A mesh that cannot be parsed, or lacks an axis, has no picture.

    Args:
        cases: cases of a report.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in cases:
        meshes = (case["mesh"], case.get("candidate_mesh") or case["mesh"])
        for row in case["channels"].get("sharding", {}).get("tables", {}).get("specs", ()):
            for mesh, side in zip(meshes, ("reference", "candidate"), strict=True):
                cut, names = (str(row.get(key) or "") for key in (side, f"{side}_axes"))
                key = f"{mesh}|{cut}|{names}"
                if key not in found and (grid := _grid(mesh, cut, names)):
                    found[key] = grid
    return found


def _grid(mesh: str, cut: str, names: str) -> dict[str, Any] | None:
    axes = [tuple(filter(None, part.split("+"))) for part in cut.split(",")]
    logical = [name or "unnamed" for name in names.split(",")]
    try:
        sizes: Mapping[str, int] = dict(MeshSpec.parse(mesh).axes)
    except ValueError:
        return None
    if len(logical) != len(axes) or any(axis not in sizes for part in axes for axis in part):
        return None
    shards = math.prod(sizes[axis] for part in axes for axis in part)
    if shards > MOST_SHARDS:
        return Grid(f"{shards} shards, too many to draw", "", ())._asdict()
    return cut_up(axes, logical, sizes)._asdict()


def cut_up(
    axes: Sequence[Sequence[str]], logical: Sequence[str | None] | None, sizes: Mapping[str, int]
) -> Grid:
    """Returns the shards of an array: the last sharded dimension across, the others down.

    Args:
        axes: mesh axes of each dimension.
        logical: names of the dimensions; None if they have none.
        sizes: mesh axes in the order of the mesh, which is the order of the device numbers.
    """
    logical = logical or ["unnamed"] * len(axes)
    cut = [dim for dim, part in enumerate(axes) if any(sizes[axis] > 1 for axis in part)]
    parts = [[axis for axis in axes[dim] if sizes[axis] > 1] for dim in cut]
    across, down = (parts[-1:], parts[:-1]) if cut else ([], [])

    def places(groups: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        axes = [axis for group in groups for axis in group]
        return [
            dict(zip(axes, at, strict=True)) for at in itertools.product(*(range(sizes[a]) for a in axes))
        ]

    columns, rows = places(across), places(down)
    names = [
        f"dimension {dim} ({logical[dim]}) over {', '.join(part)}"
        for dim, part in zip(cut, parts, strict=True)
    ]
    count = len(rows) * len(columns)
    cells = tuple(
        tuple(
            (_devices({**row, **column}, sizes), _colour(number * len(columns) + at, count))
            for at, column in enumerate(columns)
        )
        for number, row in enumerate(rows)
    )
    return Grid(names[-1] if names else "whole on every device", "; ".join(names[:-1]), cells)


def _devices(fixed: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    """Returns the numbers of the devices at the given mesh coordinates, for all values of the other axes."""
    numbers = []
    for number, place in enumerate(itertools.product(*(range(size) for size in sizes.values()))):
        at = dict(zip(sizes, place, strict=True))
        if all(at[axis] == index for axis, index in fixed.items()):
            numbers.append(number)
    listed = ", ".join(map(str, numbers[:6]))
    return listed + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")


def _colour(index: int, count: int) -> str:
    red, green, blue = colorsys.hls_to_rgb(0.55 + 0.4 * index / max(count, 1), 0.82, 0.55)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"
