"""Self-contained HTML page: it contains the whole record, loads nothing, and draws pictures in the browser."""

import colorsys
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.builds.meshes import MeshSpec
from parity.report.changes import changes
from parity.report.formats.form import blocking, explanation, first_difference, headline, passes
from parity.report.reading import Record
from parity.report.records import VERDICTS, phase_seconds
from parity.report.table import COLUMNS, LOUD
from parity.verdicts import SIDES, listed

__all__ = ["grids", "html", "render"]


FOLDER = Path(__file__).parent / "page"
MOST_ROWS = 300
"""Number of rows of the matrix that are shown at first; a browser takes seconds for thousands."""
MOST_CASES, MOST_FINDINGS, MOST_CHANGES = 40, 5, 200


def render(template: str, **values: Any) -> str:
    """Returns a page of a template in the folder ``page``; values are escaped, and a missing one raises."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(**values)


def html(report: Record, earlier: Sequence[Record]) -> str:
    """Returns the report as a page.

    Args:
        report: as read.
        earlier: earlier reports, the oldest first, for the trend and the changes since the last one.
    """
    rows = [_row(case) for case in report["cases"]]
    held = [(number, case) for number, case in enumerate(report["cases"]) if blocking(case)]
    found = changes(earlier[-1], report) if earlier else []
    return render(
        "page.html",
        title=f"Parity: {headline(report)}",
        passes=passes(report),
        headline=headline(report),
        report=report,
        commit=str(report["environment"].get("commit") or ""),
        held=[_held(number, case) for number, case in held[:MOST_CASES]],
        more_held=max(0, len(held) - MOST_CASES),
        rests=[
            (number, case["id"], _finding(first))
            for number, case in enumerate(report["cases"])
            if (first := first_difference(case))
        ],
        columns={name: ", ".join(channels) for name, channels in COLUMNS.items()},
        rows=rows,
        meshes=sorted({row["mesh"] for row in rows} - {""}),
        verdicts=[name for name in VERDICTS if report["summary"].get(name)],
        rungs=_rungs(report),
        phases=_phases(report),
        trend=[_point(one) for one in (*earlier, report)] if earlier else [],
        changes=found[:MOST_CHANGES],
        more_changes=max(0, len(found) - MOST_CHANGES),
        gate=report.get("gate"),
        words=sorted({word for row in rows for word in row["words"].split()}),
        most_rows=MOST_ROWS,
        data=map(_script_safe, report["cases"]),
        grids=_script_safe(grids(report["cases"])),
    )


def _row(case: Record) -> dict[str, Any]:
    name, _, mesh = case["id"].rpartition("@")
    cells = []
    for names in COLUMNS.values():
        held = [(name, case["channels"][name]["verdict"]) for name in names if name in case["channels"]]
        cells.append(next((one for one in held if one[1] in LOUD), held[0] if held else ("", "absent")))
    return {
        "id": name or mesh,
        "mesh": mesh if name else "",
        "verdict": case["verdict"],
        "cells": cells,
        "words": " ".join(sorted({one["verdict"] for one in case["channels"].values()})),
        "seconds": sum(case["seconds"].values()),
    }


def _held(number: int, case: Record) -> dict[str, Any]:
    channels = [
        {
            "name": name,
            "verdict": one["verdict"],
            "detail": one.get("detail", "").partition("; first difference")[0],
            "findings": [_finding(finding) for finding in one["findings"][:MOST_FINDINGS]],
            "more": max(0, len(one["findings"]) - MOST_FINDINGS),
        }
        for name, one in blocking(case)
    ]
    found = explanation(case)
    return {
        "number": number,
        "id": case["id"],
        "verdict": case["verdict"],
        "channels": channels,
        "headline": found.line if found else "",
        "bisect": case.get("bisect", {}).get("sentence", "").removeprefix(f"{case['id']}: "),
    }


def _finding(finding: Record) -> dict[str, Any]:
    labels = finding.get("labels", SIDES)
    rest = (
        finding.get("distance"),
        f"likely {finding['cause']}" if finding.get("cause") else "",
        finding.get("next_step"),
    )
    return {
        "where": finding["where"],
        "sides": [(label, finding[key]) for label, key in zip(labels, SIDES, strict=True)],
        "rest": "; ".join(filter(None, rest)),
    }


def _rungs(report: Record) -> list[tuple[str, int, int, str]]:
    """Returns each combination of verdicts on program and values: cases, operations compared, an example."""
    rungs: dict[str, list[Record]] = {}
    for case in report["cases"]:
        program = case["channels"].get("program", {}).get("verdict", "none")
        values = case["channels"].get("values", {}).get("verdict", "skipped")
        words = (
            f"program {program}"
            if program in ("proved", "reordered")
            else f"program {program}, values {values}"
        )
        rungs.setdefault(words, []).append(case)
    return [
        (words, len(cases), sum(map(_operations, cases)), cases[0]["id"])
        for words, cases in sorted(rungs.items(), key=lambda one: -len(one[1]))
    ]


def _operations(case: Record) -> int:
    return int(case["channels"].get("program", {}).get("measures", {}).get("operations") or 0)


def _phases(report: Record) -> list[tuple[str, float, float]]:
    """Returns seconds by phase, and their percentage of the longest phase."""
    totals = phase_seconds(report)
    most = max(totals.values(), default=0.0) or 1.0
    return [(name, seconds, max(0.0, 100 * seconds / most)) for name, seconds in totals.items()]


def _point(report: Record) -> dict[str, Any]:
    count = len(report["cases"]) or 1
    return {
        "commit": str(report["environment"].get("commit") or "unknown")[:10],
        "words": headline(report),
        "shares": [(name, 100 * report["summary"].get(name, 0) / count) for name in VERDICTS],
        "seconds": report["seconds"],
    }


def _script_safe(data: Any) -> str:
    """Returns JSON that browsers can read and that cannot close the surrounding script element."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


MOST_SHARDS = 64
"""Maximum number of shards in a picture; for more, the picture is replaced by text."""


def grids(cases: Iterable[Record]) -> dict[str, dict[str, Any] | None]:
    """Returns the layouts of leaves on the meshes of some cases, by ``mesh|cut|names``; see `cut_up`.

    Args:
        cases: cases of a report.
    """
    layouts = dict.fromkeys(
        (mesh, str(row.get(side) or ""), str(row.get(f"{side}_axes") or ""))
        for case in cases
        for row in case["channels"].get("sharding", {}).get("tables", {}).get("specs", ())
        for mesh, side in zip((case["mesh"], case.get("candidate_mesh") or case["mesh"]), SIDES, strict=True)
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
    cells = [(listed(list(map(str, shard)), 6), _colour(at, count)) for at, shard in enumerate(shards)]
    words = [
        f"dimension {at} ({logical[at] or 'unnamed'}) over {', '.join(parts[at])}" for at in (*down, across)
    ]
    return {
        "across": words[-1] if split else "whole on every device",
        "down": "; ".join(words[:-1]),
        "cells": [cells[at : at + columns] for at in range(0, count, columns)],
    }


def _colour(index: int, count: int) -> str:
    red, green, blue = colorsys.hls_to_rgb(0.55 + 0.4 * index / max(count, 1), 0.82, 0.55)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"
