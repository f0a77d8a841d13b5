"""``parity inspect``: the structure of both sides, in full for one case, in a line per side for several."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console, echo, make_request
from parity.verdicts import BLOCKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from parity.cases.case import Case
    from parity.compare.session import Session


def command(
    select: options.Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile; aot:v5p:2x2x1 needs no TPU.")] = "cpu",
    full_size: options.FullSize = False,
    json: options.Json = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
) -> None:
    """Show the structure of compiled programs. For one case: loops, collectives, memory, cost, placements.

    For several cases: one line for each side.
    """
    from parity.channels import CHANNELS, Aspect, of_aspect
    from parity.compare.evidence import Evidence
    from parity.compare.inspection import inspect_sides
    from parity.report.records import write_json
    from parity.report.structure import print_placements, print_sections, print_summaries
    from parity.run.run import run_case

    checked_files(json=json)
    request = make_request(select, pair, setting, backend=backend, full_size=full_size, paranoid=True)
    cases, session = request.open_cases()
    summaries = summarise_cases(session, cases, console())
    print_summaries(console(), summaries)
    differs = any(side["error"] for one in summaries for side in one["sides"])
    alone = Evidence.of(cases[0], session) if len(cases) == len(summaries) == 1 else None
    if alone and not differs:
        sections = inspect_sides(alone)
        result = run_case(alone.case, session, of_aspect(Aspect.STRUCTURE))
        print_sections(console(), result, sections)
        differs = bool(result.blocking)
        summaries[0]["channels"] = {name: str(channel.verdict) for name, channel in result.channels.items()}
        summaries[0]["sections"] = [section._asdict() for section in sections]
    if json:
        write_json({"schema": 1, "cases": summaries}, json)
        echo(f"report: {json}")
    if alone and alone.case.mesh.axes and "sharding" not in alone.case.accept.not_applicable:
        placements, screen = CHANNELS["sharding"].look(alone), console()
        screen.print()
        print_placements(screen, alone, placements)
        differs |= placements.verdict in BLOCKING
    if len(summaries) < len(cases):
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if differs else PARITY)


def summarise_cases(session: "Session", cases: "Sequence[Case]", console: "Console") -> list[dict[str, Any]]:
    """Returns the numbers of each case, one after the other; those of the finished ones if it is interrupted."""
    from parity.compare.evidence import Evidence
    from parity.compare.inspection import summarise_case

    summaries = []
    with contextlib.suppress(KeyboardInterrupt):
        for number, case in enumerate(cases, 1):
            console.print(f"[{number}/{len(cases)}] {case.id}", soft_wrap=True, markup=False, highlight=False)
            summaries.append(summarise_case(Evidence.of(case, session)))
    return summaries
