"""``parity structure``: loops, collectives, memory and cycles, a line a case."""

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

__all__ = ["structure"]


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
    from parity.cli.request import chosen, summarise_cases
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
