"""``parity run``: every channel of every case."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.ending import finish
from parity.cli.options import (
    CompileGib,
    CompileSeconds,
    FullSize,
    Json,
    NoCache,
    Pairs,
    Select,
    Settings,
    Workers,
    console,
    make_order,
    resource_options,
)

__all__ = ["run"]


def run(
    select: Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile and run.")] = "cpu",
    json: Json = None,
    pair: Pairs = None,
    setting: Settings = None,
    paranoid: Annotated[bool, typer.Option(help="Compile and run also what is proved.")] = False,
    full_size: FullSize = False,
    explain: Annotated[
        bool, typer.Option(help="Name the smallest change of settings that undoes a difference in structure.")
    ] = False,
    workers: Workers = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that run each case together, under jax.distributed.")
    ] = 1,
    no_cache: NoCache = False,
    compile_gib: CompileGib = None,
    compile_seconds: CompileSeconds = None,
    builtin: Annotated[
        bool,
        typer.Option("--builtin", help="The pairs that come with parity, where no project says otherwise."),
    ] = False,
    traceback: Annotated[bool, typer.Option(help="Print the traceback of every error.")] = False,
) -> None:
    """Run cases: live progress, a table, findings, and a JSON report on demand."""
    from parity.cases.settings import must_have_pairs
    from parity.cli.order import execute
    from parity.report import print_table, print_tracebacks
    from parity.running.explain import print_explanations

    if not (select or pair or builtin):
        must_have_pairs(Path.cwd())
    options = resource_options(
        no_cache=no_cache, workers=workers, compile_gib=compile_gib, compile_seconds=compile_seconds
    )
    order = make_order(
        select,
        pair,
        setting,
        options,
        backend=backend,
        full_size=full_size,
        paranoid=paranoid,
        processes=processes,
        json=json,
    )
    record = execute(order, console())
    print_table(console(), record)
    if traceback:
        print_tracebacks(console(), record.results)
    if explain:
        print_explanations(console(), record.results)
    finish(record, json)
