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
    from parity.compare.evidence import Evidence
    from parity.compare.inspection import Summary
    from parity.compare.session import Session

__all__ = ["inspect"]


def inspect(
    select: options.Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile; aot:v5p:2x2x1 needs no TPU.")] = "cpu",
    full_size: options.FullSize = False,
    json: options.Json = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
    no_cache: options.NoCache = False,
    compile_gib: options.CompileGib = None,
    compile_seconds: options.CompileSeconds = None,
) -> None:
    """Show the structure of compiled programs. For one case: loops, collectives, memory, cost, placements.

    For several cases: one line for each side.
    """
    from parity.compare.evidence import Evidence
    from parity.report.records import write_json
    from parity.report.structure import print_summaries, summaries_record

    checked_files(json=json)
    request = make_request(
        select,
        pair,
        setting,
        no_cache=no_cache,
        compile_gib=compile_gib,
        compile_seconds=compile_seconds,
        backend=backend,
        full_size=full_size,
        paranoid=True,
    )
    cases, session = request.open_cases()
    summaries = summarise_cases(session, cases, console())
    print_summaries(console(), summaries)
    record = summaries_record(summaries)
    differs = any(side.error for one in summaries for side in one.sides)
    alone = Evidence.of(cases[0], session) if len(cases) == len(summaries) == 1 else None
    if alone and not differs:
        found, differs = _sections(alone, session)
        record["cases"][0] |= found
    if json:
        write_json(record, json)
        echo(f"report: {json}")
    if alone and _placed(alone.case):
        differs |= _placements(alone)
    if len(summaries) < len(cases):
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if differs else PARITY)


def summarise_cases(session: "Session", cases: "Sequence[Case]", console: "Console") -> "list[Summary]":
    """Returns the structure of each case, one after the other; both sides of a case compile at once.

    When interrupted, it returns the finished ones.

    Args:
        session: compiles the cases, even if they are proved.
        cases: on their backend.
        console: the console for the progress.
    """
    from parity.compare.evidence import Evidence
    from parity.compare.inspection import summarise_case

    summaries = []
    with contextlib.suppress(KeyboardInterrupt):
        for number, case in enumerate(cases, 1):
            console.print(f"[{number}/{len(cases)}] {case.id}", soft_wrap=True, markup=False, highlight=False)
            summaries.append(summarise_case(Evidence.of(case, session)))
    return summaries


def _placed(case: "Case") -> bool:
    """True if a case has a mesh, and the sharding of both sides can be compared."""
    return bool(case.mesh.axes) and "sharding" not in case.accept.not_applicable


def _sections(work: "Evidence", session: "Session") -> tuple[dict[str, Any], bool]:
    """Prints the structure of both sides; returns it as plain data, and True if it differs."""
    from parity.channels import Aspect, of_aspect
    from parity.compare.inspection import inspect_sides
    from parity.report.structure import print_sections, sections_record
    from parity.run.run import run_case

    sections = inspect_sides(work)
    result = run_case(work.case, session, of_aspect(Aspect.STRUCTURE))
    print_sections(console(), result, sections)
    return sections_record(result, sections), bool(result.blocking)


def _placements(work: "Evidence") -> bool:
    """Prints the placement of every leaf; returns True if the placements differ."""
    from parity.channels import CHANNELS
    from parity.report.structure import placements, print_placements

    result, screen = CHANNELS["sharding"].look(work), console()
    screen.print()
    print_placements(screen, work.case, result, placements(work))
    return result.verdict in BLOCKING
