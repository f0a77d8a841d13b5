"""Self-contained HTML page: the placement of every leaf, and pictures of the largest arrays on the mesh."""

from collections.abc import Mapping, Sequence

from parity.builds.tree import Role
from parity.compare.evidence import Evidence
from parity.compare.layout import Placed, placed
from parity.report.formats.html import render
from parity.report.formats.pictures import cut_up

__all__ = ["placements", "shardings_page"]

CELL_WIDTH, CELL_HEIGHT = 110, 46


def placements(work: Evidence) -> list[tuple[Placed, Placed]]:
    """Returns the placements on both sides of every leaf that has one partner; parameters first.

    Args:
        work: a comparison on a mesh.

    Raises:
        MapError: leaves have no partner.
    """
    rows = [
        (placed(work.reference, entry.reference[0]), placed(work.candidate, entry.candidate[0]))
        for entry in work.weights.entries
        if len(entry.reference) == len(entry.candidate) == 1
    ]
    return sorted(rows, key=lambda row: list(Role).index(row[0].leaf.role))


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
        most: maximum number of arrays that are drawn.
    """
    largest = sorted((left for left, _ in rows), key=lambda one: -one.bytes_per_device)[:most]
    verdict, detail, findings = outcome
    return render(
        "shardings.html",
        title=title,
        verdict=verdict,
        detail=detail,
        findings=findings,
        mesh=".".join(f"{axis}{size}" for axis, size in mesh.items()),
        pictures=[(one.leaf, cut_up(one.axes, one.leaf.logical_axes, mesh)) for one in largest],
        rows=rows,
        w=CELL_WIDTH,
        h=CELL_HEIGHT,
    )
