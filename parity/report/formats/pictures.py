"""What the page draws of a record that its script cannot work out: arrays cut over meshes, each way once."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from parity.builds.meshes import MeshSpec
from parity.report.page import cut_up
from parity.report.reading import Record

__all__ = ["MOST_SHARDS", "grids"]

MOST_SHARDS = 64
"""Shards in one picture; more are said in words."""


def grids(cases: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Returns every way in which leaves of some cases are cut over their meshes, by ``mesh|cut|names``.

    A mesh that cannot be read, or has no such axis, has no picture.

    Args:
        cases: of a report.
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
        return {"across": f"{shards} shards, too many to draw", "down": "", "cells": []}
    across, down, cells = cut_up(axes, logical, sizes)
    return {"across": across, "down": down, "cells": cells}
