"""``parity list``: pairs, variants, programs, meshes, channels."""

import collections

from rich.table import Table
from rich.text import Text

from parity.cli.options import (
    Pairs,
    Select,
    Settings,
    console,
    make_order,
)

__all__ = ["list_cases"]


def list_cases(select: Select = None, pair: Pairs = None, setting: Settings = None) -> None:
    """List pairs, variants, programs and meshes."""
    from parity.backends.registry import known_backends
    from parity.cli.order import chosen

    pairs, cases = chosen(make_order(select, pair, setting))
    screen = console()
    for found in pairs:
        screen.print(Text(found.name, "bold").append(f"  {found.about}", "dim"))
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for case in cases:
        groups[case.id.split("/")[0], str(case.mesh)].append(case.program)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("variant", "mesh", "programs"):
        table.add_column(head, overflow="fold")
    for (variant, mesh), programs in groups.items():
        table.add_row(variant, mesh, " ".join(programs))
    screen.print(table)
    screen.print(f"{len(cases)} cases; backends: {', '.join(known_backends())}")
