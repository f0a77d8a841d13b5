"""Self-contained HTML page: it contains the whole record, loads nothing, and draws pictures in the browser."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from parity.builds.meshes import MeshSpec
from parity.report.changes import changes
from parity.report.table import COLUMNS, shown
from parity.run.record import PROOFS, CaseResult, Report
from parity.verdicts import SIDES, Verdict, listed, plain

FOLDER = Path(__file__).parent / "page"
MOST_ROWS = 300
"""Number of rows of the matrix that are shown at first; a browser takes seconds for thousands."""


def html(report: Report, earlier: Sequence[Report]) -> str:
    """Returns the report as a page: values are escaped, and a missing one raises."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    rows = [(case, *_named(case)) for case in report.cases]
    cases = list(enumerate(report.cases))
    return environment.get_template("page.html").render(
        report=report,
        held=[(number, case) for number, case in cases if case.blocking],
        rests=[(number, case) for number, case in cases if case.first_difference],
        columns=COLUMNS,
        shown=shown,
        rows=rows,
        most_rows=MOST_ROWS,
        meshes=sorted({mesh for _, _, mesh in rows} - {""}),
        words=sorted({one.verdict for case in report.cases for one in case.channels.values()}),
        rungs=_rungs(report),
        trend=[*earlier, report] if earlier else [],
        changes=changes(earlier[-1], report) if earlier else [],
        script_safe=_script_safe,
        grids=grids(report.cases),
    )


def _named(case: CaseResult) -> tuple[str, str]:
    name, _, mesh = case.id.rpartition("@")
    return (name, mesh) if name else (mesh, "")


def _rungs(report: Report) -> list[tuple[str, int, int, str]]:
    """Returns each combination of verdicts on program and values: cases, operations compared, an example."""
    rungs: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        verdicts = {name: channel.verdict for name, channel in case.channels.items()}
        words = f"program {verdicts.get('program', 'none')}"
        if verdicts.get("program") not in PROOFS:
            words += f", values {verdicts.get('values', Verdict.SKIPPED)}"
        rungs.setdefault(words, []).append(case)
    return [
        (words, len(cases), sum(map(_operations, cases)), cases[0].id)
        for words, cases in sorted(rungs.items(), key=lambda one: -len(one[1]))
    ]


def _operations(case: CaseResult) -> int:
    return int(case.channels["program"].measures.get("operations", 0)) if "program" in case.channels else 0


def _script_safe(data: Any) -> str:
    """Returns JSON that browsers can read and that cannot close the surrounding script element."""
    text = msgspec.json.encode(plain(data)).decode()  # NaN and infinities become null
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


MOST_SHARDS = 64
"""Maximum number of shards in a picture; for more, the picture is replaced by text."""


def grids(cases: Iterable[CaseResult]) -> dict[str, dict[str, Any] | None]:
    """Returns the layouts of leaves on the meshes of some cases, by ``mesh|cut|names``; see `cut_up`."""
    layouts = dict.fromkeys(
        (mesh, str(row.get(side) or ""), str(row.get(f"{side}_axes") or ""))
        for case in cases
        for row in case.rows("sharding", "specs")
        for mesh, side in zip((case.mesh, case.candidate_mesh or case.mesh), SIDES, strict=True)
    )
    return {"|".join(layout): grid for layout in layouts if (grid := cut_up(*layout))}


def cut_up(mesh: str, cut: str, names: str) -> dict[str, Any] | None:
    """Returns the shards of an array: the last sharded dimension across, the others down.

    ``across`` and ``down`` name the dimensions and the mesh axes over which they are split; ``cells`` has rows of
    (devices, fill colour), one per shard. None if the mesh cannot be parsed, or lacks an axis.

    Args:
        mesh: mesh, whose axes are in the order of the device numbers.
        cut: mesh axes of each dimension, such as ``fsdp+tensor,``.
        names: logical axis of each dimension, such as ``embed,mlp``.
    """
    axes, logical = [part.split("+") if part else [] for part in cut.split(",")], names.split(",")
    try:
        sizes = dict(MeshSpec.parse(mesh).axes)
    except ValueError:
        return None
    if len(logical) != len(axes) or not {axis for part in axes for axis in part} <= sizes.keys():
        return None
    parts = [[axis for axis in part if sizes[axis] > 1] for part in axes]
    *down, across = [at for at, part in enumerate(parts) if part] or [0]
    split = [axis for part in parts for axis in part]
    count, columns = (math.prod(sizes[axis] for axis in held) for held in (split, parts[across]))
    if count > MOST_SHARDS:
        return {"across": f"{count} shards, too many to draw", "down": "", "cells": ()}
    devices = np.arange(math.prod(sizes.values())).reshape([*sizes.values()])
    order = sorted(sizes, key=[*split, *sizes].index)  # the sharded axes first
    shards = devices.transpose([list(sizes).index(axis) for axis in order]).reshape(count, -1)
    cells = [
        (listed(list(map(str, shard)), 6), f"hsl({198 + 144 * at // count} 55% 82%)")
        for at, shard in enumerate(shards)
    ]
    words = [
        f"dimension {at} ({logical[at] or 'unnamed'}) over {', '.join(parts[at])}" for at in (*down, across)
    ]
    return {
        "across": words[-1] if split else "whole on every device",
        "down": "; ".join(words[:-1]),
        "cells": [cells[at : at + columns] for at in range(0, count, columns)],
    }
