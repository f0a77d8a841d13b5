"""The commands that show what is there: list, map, shardings, doctor."""

import collections
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from parity.cli.options import DIFFERENCE, PARITY, USAGE, Pairs, Select, Settings, console, make_order
from parity.verdicts import BLOCKING

__all__ = ["doctor", "list_cases", "shardings", "show_map"]


def list_cases(
    select: Select = None,
    pair: Pairs = None,
    setting: Settings = None,
    coverage: Annotated[
        bool, typer.Option(help="What combinations of options the pairs cover, and which case what is rare.")
    ] = False,
) -> None:
    """List pairs, variants, programs and meshes."""
    from parity.backends import known_backends
    from parity.execute import chosen
    from parity.report import print_coverage

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


def show_map(
    select: Annotated[str, typer.Argument(help="A pair, a variant or a case.")],
    pair: Pairs = None,
    setting: Settings = None,
) -> None:
    """Print the weight map of a pair's first matching case, and what certifies it."""
    from parity.certificate import certify
    from parity.comparison import Comparison, Workbench
    from parity.execute import chosen
    from parity.report import map_line
    from parity.tree import Role
    from parity.weights import MapError

    cases = chosen(make_order([select], pair, setting))[1]
    work = Comparison(cases[0], Workbench())
    screen = console()
    screen.print(f"{cases[0].id}: {work.builds[0].name} against {work.builds[1].name}", soft_wrap=True)
    try:
        certified = certify(work)
    except MapError as error:
        for side, leaves in (("reference", error.reference), ("candidate", error.candidate)):
            for leaf in leaves:
                screen.print(Text(f"  only in the {side}: {leaf.path} {leaf.dtype}{list(leaf.shape)}", "red"))
        screen.print("no map: add the leaf to the other side, or give the pair a weight rule")
        raise typer.Exit(DIFFERENCE) from None
    for role in Role:
        rows = [one for one in certified if one.entry.role is role]
        screen.print(Text(f"{role}, {len(rows)} entries", "bold cyan"))
        for one in rows:
            screen.print(map_line(one), soft_wrap=True)
    wrong = sum(one.contradicted for one in certified)
    leaves = [len(build.leaves) for build in work.builds]
    screen.print(
        f"{leaves[0]} reference and {leaves[1]} candidate leaves in {len(certified)} entries: total, one-to-one"
        + (f"; {wrong} contradicted by the probe" if wrong else "")
    )
    raise typer.Exit(DIFFERENCE if wrong else PARITY)


def shardings(
    select: Annotated[
        str, typer.Argument(help="A case, or a selector; the first case with a mesh is shown.")
    ],
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    pair: Pairs = None,
    setting: Settings = None,
) -> None:
    """Show where every leaf of a case lies on both sides, and what that costs per device."""
    from parity.channels import sharding
    from parity.comparison import Comparison, Workbench
    from parity.execute import chosen
    from parity.report import print_placements, write_text
    from parity.report.page import placements, shardings_page
    from parity.report.records import check_writable

    if html:
        check_writable(html, "--html")
    cases = [
        case
        for case in chosen(make_order([select], pair, setting))[1]
        if case.mesh.axes and not case.not_applicable
    ]
    if not cases:
        raise ValueError(
            f"shardings {select!r}: expected a case on a mesh with comparable shardings; see `parity list`"
        )
    work, screen = Comparison(cases[0], Workbench()), console()
    result, rows = sharding(work), placements(work)
    print_placements(screen, cases[0], result, rows)
    if html:
        outcome = (str(result.verdict), result.detail, [finding.sentence() for finding in result.findings])
        write_text(shardings_page(cases[0].id, outcome, rows, dict(cases[0].mesh.axes)), html)
        screen.print(f"page: {html}", soft_wrap=True)
    raise typer.Exit(DIFFERENCE if result.verdict in BLOCKING else PARITY)


def doctor() -> None:
    """Show versions, devices and backends, and how to get what is missing."""
    from parity.doctor import diagnose

    screen, checks = console(), diagnose(make_order(None, None, None).resources)
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        table.add_row(check.name, check.found, Text(check.remedy, "yellow"))
    screen.print(table)
    raise typer.Exit(USAGE if any(check.needed for check in checks) else PARITY)
