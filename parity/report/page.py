"""One self-contained HTML page: where every leaf lies, and pictures of the largest arrays on the mesh."""

import colorsys
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from parity.builds.tree import Role
from parity.compare.evidence import Evidence
from parity.compare.layout import Placed, placed

__all__ = ["Picture", "cut_up", "draw", "placements", "shardings_page"]

CELL_WIDTH, CELL_HEIGHT = 110, 46


Cells = tuple[tuple[tuple[str, str], ...], ...]
"""Rows of (devices, fill colour)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """An array cut into shards, drawn as a grid.

    Args:
        leaf: what is drawn.
        across, down: what the columns and rows are, in words.
        cells: the shards.
    """

    leaf: Placed
    across: str
    down: str
    cells: Cells


def placements(work: Evidence) -> list[tuple[Placed, Placed]]:
    """Returns every leaf that has one partner, as it lies on both sides; parameters first.

    Args:
        work: a comparison on a mesh.

    Raises:
        MapError: leaves are left over.
    """
    rows = [
        (placed(work.reference, entry.reference[0]), placed(work.candidate, entry.candidate[0]))
        for entry in work.weights.entries
        if len(entry.reference) == len(entry.candidate) == 1
    ]
    return sorted(rows, key=lambda row: list(Role).index(row[0].role))


def draw(leaf: Placed, sizes: Mapping[str, int]) -> Picture:
    """Lays out the shards of a leaf: the last sharded dimension across, the others down.

    Args:
        leaf: with at most any number of sharded dimensions.
        sizes: mesh axes in the order of the mesh, which is the order of the device numbers.
    """
    across, down, cells = cut_up(leaf.axes, leaf.logical_axes or ("unnamed",) * len(leaf.shape), sizes)
    return Picture(leaf=leaf, across=across, down=down, cells=cells)


def cut_up(
    axes: Sequence[Sequence[str]], logical: Sequence[str | None], sizes: Mapping[str, int]
) -> tuple[str, str, Cells]:
    """Returns what the columns and the rows of a picture are, in words, and its shards.

    Args:
        axes: mesh axes of each dimension.
        logical: names of the dimensions.
        sizes: see `draw`.
    """
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
    return names[-1] if names else "whole on every device", "; ".join(names[:-1]), cells


def _devices(fixed: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    """Returns the numbers of the devices at a place of the mesh, the other axes running."""
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


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<style>
 body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 74rem; padding: 0 1rem; color: #1c2430 }
 h1 { font-size: 1.35rem } h2 { font-size: 1.1rem; margin-top: 2rem }
 .failed { color: #b3261e; font-weight: 600 } .equal { color: #1b7f4d; font-weight: 600 }
 table { border-collapse: collapse; width: 100%; font-size: .86rem }
 th, td { text-align: left; padding: .28rem .6rem; border-bottom: 1px solid #e3e7ee; vertical-align: top }
 td.n { text-align: right; font-variant-numeric: tabular-nums } code { font-size: .82rem }
 tr.off { background: #fdecea } .pictures { display: flex; flex-wrap: wrap; gap: 1.4rem }
 figure { margin: 0 } figcaption { font-size: .82rem; max-width: 34rem; margin-bottom: .3rem }
 svg text { font: 12px system-ui, sans-serif; text-anchor: middle; dominant-baseline: middle }
</style></head><body>
<h1>{{ title }}</h1>
<p><span class="{{ verdict }}">{{ verdict }}</span> &mdash; {{ detail }}</p>
{% if findings %}<ul>{% for finding in findings %}<li>{{ finding }}</li>{% endfor %}</ul>{% endif %}
<h2>The largest arrays on the mesh {{ mesh }}</h2>
<p>Each box is one shard; the numbers in it are the devices that hold it.</p>
<div class="pictures">{% for picture in pictures %}
<figure><figcaption><code>{{ picture.leaf.path }}</code> {{ picture.leaf.shape }}<br>
across: {{ picture.across }}{% if picture.down %}<br>down: {{ picture.down }}{% endif %}</figcaption>
<svg width="{{ picture.cells[0]|length * w + 2 }}" height="{{ picture.cells|length * h + 2 }}" role="img">
{% for row in picture.cells %}{% set y = loop.index0 * h + 1 %}{% for devices, colour in row %}
<rect x="{{ loop.index0 * w + 1 }}" y="{{ y }}" width="{{ w }}" height="{{ h }}" fill="{{ colour }}" stroke="#5a6678"/>
<text x="{{ loop.index0 * w + w / 2 }}" y="{{ y + h / 2 }}">{{ devices }}</text>
{% endfor %}{% endfor %}</svg></figure>{% endfor %}</div>
<h2>All {{ rows|length }} leaves</h2>
<table><tr><th>leaf<th>shape<th>logical axes<th>reference spec<th>candidate spec<th>bytes per device</tr>
{% for ours, theirs in rows %}<tr{% if ours.axes != theirs.axes %} class="off"{% endif %}>
<td><code>{{ theirs.path }}</code><td>{{ ours.shape }}<td>{{ ours.logical_axes or "-" }}
<td title="{{ ours.why }}">{{ ours.spec }}<td title="{{ theirs.why }}">{{ theirs.spec }}
<td class="n">{{ "{:,}".format(theirs.bytes_per_device) }}</tr>
{% endfor %}</table></body></html>
"""


def shardings_page(
    title: str,
    outcome: tuple[str, str, Sequence[str]],
    rows: Sequence[tuple[Placed, Placed]],
    mesh: Mapping[str, int],
    most: int = 8,
) -> str:
    """Returns the page.

    Args:
        title: the case.
        outcome: verdict, detail and findings of the sharding channel.
        rows: every leaf on both sides.
        mesh: size of each mesh axis.
        most: how many arrays are drawn.
    """
    largest = sorted((ours for ours, _ in rows), key=lambda leaf: -leaf.bytes_per_device)[:most]
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    verdict, detail, findings = outcome
    return environment.from_string(TEMPLATE).render(
        title=title,
        verdict=verdict,
        detail=detail,
        findings=findings,
        mesh=".".join(f"{axis}{size}" for axis, size in mesh.items()),
        pictures=[draw(leaf, mesh) for leaf in largest],
        rows=rows,
        w=CELL_WIDTH,
        h=CELL_HEIGHT,
    )
