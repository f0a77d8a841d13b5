"""``parity hlo``: one case's compiled programs, side by side."""

from typing import Annotated

import typer

from parity.cli.options import (
    DIFFERENCE,
    PARITY,
    FullSize,
    Json,
    NoCache,
    Pairs,
    Settings,
    console,
    make_order,
    resource_options,
)

__all__ = ["hlo"]


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
    from parity.channels import Aspect, of_aspect
    from parity.cli.request import chosen
    from parity.compare.comparison import Comparison, Session
    from parity.compare.inspection import inspect_sides
    from parity.report import print_sections, sections_record, write_json
    from parity.run.run import run_case

    options = resource_options(no_cache=no_cache)
    order = make_order([select], pair, setting, options, backend=backend, full_size=full_size, json=json)
    cases = chosen(order)[1]
    if len(cases) > 1:
        some = ", ".join(case.id for case in cases[:3])
        raise ValueError(f"hlo {select!r}: expected one case, got {len(cases)}: {some}...; name one of them")
    bench = Session(paranoid=True, compiler=order.resources.compiler())
    sections = inspect_sides(Comparison(cases[0], bench))
    result = run_case(cases[0], bench, of_aspect(Aspect.STRUCTURE))
    print_sections(console(), result, sections)
    if json:
        write_json(sections_record(result, sections), json)
        console().print(f"report: {json}", soft_wrap=True)
    raise typer.Exit(DIFFERENCE if result.blocking else PARITY)
