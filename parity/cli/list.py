"""``parity list``: pairs, variants, programs, meshes, channels."""

import collections
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from parity.cli.options import (
    DIFFERENCE,
    PARITY,
    Pairs,
    Select,
    Settings,
    console,
    make_order,
)

__all__ = ["list_cases"]


def list_cases(
    select: Select = None,
    pair: Pairs = None,
    setting: Settings = None,
    channels: Annotated[bool, typer.Option(help="What each channel compares, needs and shows.")] = False,
    coverage: Annotated[
        bool, typer.Option(help="What combinations of options the pairs cover, and which case what is rare.")
    ] = False,
) -> None:
    """List pairs, variants, programs and meshes."""
    from parity.backends.registry import known_backends
    from parity.cli.order import chosen
    from parity.report import channels_markdown, print_coverage

    if channels:
        print(channels_markdown(), end="")
        return

    pairs, cases = chosen(make_order(select, pair, setting))
    screen = console()
    if coverage:
        missing = [print_coverage(screen, one) for found in pairs for one in found.coverage()]
        raise typer.Exit(DIFFERENCE if any(missing) else PARITY)
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
