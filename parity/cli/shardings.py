"""``parity shardings``: where every leaf lies."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import (
    DIFFERENCE,
    PARITY,
    Pairs,
    Settings,
    console,
    make_order,
)
from parity.verdicts import BLOCKING

__all__ = ["shardings"]


def shardings(
    select: Annotated[
        str, typer.Argument(help="A case, or a selector; the first case with a mesh is shown.")
    ],
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    pair: Pairs = None,
    setting: Settings = None,
) -> None:
    """Show where every leaf of a case lies on both sides, and what that costs per device."""
    from parity.channels import CHANNELS
    from parity.cli.request import chosen
    from parity.compare.comparison import Comparison, Session
    from parity.report import print_placements, write_text
    from parity.report.page import placements, shardings_page
    from parity.report.records import check_writable

    if html:
        check_writable(html, "--html")
    cases = [
        case
        for case in chosen(make_order([select], pair, setting))[1]
        if case.mesh.axes and "sharding" not in case.not_applicable
    ]
    if not cases:
        raise ValueError(
            f"shardings {select!r}: expected a case on a mesh with comparable shardings; see `parity list`"
        )
    work, screen = Comparison(cases[0], Session()), console()
    result, rows = CHANNELS["sharding"].look(work), placements(work)
    print_placements(screen, cases[0], result, rows)
    if html:
        outcome = (str(result.verdict), result.detail, [finding.sentence() for finding in result.findings])
        write_text(shardings_page(cases[0].id, outcome, rows, dict(cases[0].mesh.axes)), html)
        screen.print(f"page: {html}", soft_wrap=True)
    raise typer.Exit(DIFFERENCE if result.verdict in BLOCKING else PARITY)
