"""The commands that show compiled programs: hlo, structure."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import (
    DIFFERENCE,
    INTERRUPTED,
    PARITY,
    CompileGib,
    CompileSeconds,
    FullSize,
    Json,
    NoCache,
    Pairs,
    Select,
    Settings,
    console,
    make_order,
    resource_options,
)

__all__ = ["hlo", "structure"]


def hlo(
    select: Annotated[str, typer.Argument(metavar="CASE", help="A case, or a selector of one.")],
    backend: Annotated[str, typer.Option(help="Where to compile; aot:v5p:2x2x1 needs no TPU.")] = "cpu",
    json: Json = None,
    pair: Pairs = None,
    setting: Settings = None,
    full_size: FullSize = False,
    no_cache: NoCache = False,
) -> None:
    """Show loops, collectives, memory, cost and dots of both sides, before and after optimisation."""
    from parity.comparison import Comparison, Workbench
    from parity.execute import chosen
    from parity.inspection import inspect_sides
    from parity.matrix import STRUCTURE_CHANNELS
    from parity.report import print_sections, sections_record, write_json
    from parity.run import run_case

    options = resource_options(no_cache=no_cache)
    order = make_order([select], pair, setting, options, backend=backend, full_size=full_size, json=json)
    cases = chosen(order)[1]
    if len(cases) > 1:
        some = ", ".join(case.id for case in cases[:3])
        raise ValueError(f"hlo {select!r}: expected one case, got {len(cases)}: {some}...; name one of them")
    bench = Workbench(paranoid=True, compiler=order.resources.compiler())
    sections = inspect_sides(Comparison(cases[0], bench))
    result = run_case(cases[0], bench, STRUCTURE_CHANNELS)
    print_sections(console(), result, sections)
    if json:
        write_json(sections_record(result, sections), json)
        console().print(f"report: {json}", soft_wrap=True)
    raise typer.Exit(DIFFERENCE if result.blocking else PARITY)


def structure(
    select: Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile; aot:v5p:2x2x1 needs no TPU.")] = "cpu",
    full_size: FullSize = False,
    json: Json = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
    pair: Pairs = None,
    setting: Settings = None,
    no_cache: NoCache = False,
    compile_gib: CompileGib = None,
    compile_seconds: CompileSeconds = None,
) -> None:
    """Show loops, collectives, memory and cycles of both sides in one line each, also at published size."""
    from parity.execute import chosen, summarise_cases
    from parity.report import print_summaries, summaries_markdown, summaries_record, write_json, write_text
    from parity.report.records import check_writable

    if markdown:
        check_writable(markdown, "--markdown")
    options = resource_options(no_cache=no_cache, compile_gib=compile_gib, compile_seconds=compile_seconds)
    asked = make_order(select, pair, setting, options, backend=backend, full_size=full_size, json=json)
    cases = chosen(asked)[1]
    summaries = summarise_cases(asked, cases, console())
    print_summaries(console(), summaries)
    if markdown:
        write_text(summaries_markdown(summaries), markdown)
    if json:
        write_json(summaries_record(summaries), json)
    if len(summaries) < len(cases):
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if any(side.error for one in summaries for side in one.sides) else PARITY)
