"""The commands that end in a verdict: run, prove, flags."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

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
    Workers,
    console,
    make_order,
    resource_options,
)
from parity.verdicts import BLOCKING, Verdict

if TYPE_CHECKING:
    from parity.report import Run

__all__ = ["flags", "prove", "run"]


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
) -> None:
    """Run cases: live progress, a table, findings, and a JSON report on demand."""
    from parity.execute import execute
    from parity.explain import print_explanations
    from parity.report import print_table

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
    if explain:
        print_explanations(console(), record.results)
    _finish(record, json)


def prove(
    select: Select = None,
    full_size: FullSize = False,
    topology: Annotated[
        str | None, typer.Option(help="Lower for this TPU slice, which need not exist: v5p:8x8x8.")
    ] = None,
    json: Json = None,
    pair: Pairs = None,
    setting: Settings = None,
    paranoid: Annotated[bool, typer.Option(help="Run what is proved and demand equal bits.")] = False,
    exact: Annotated[
        bool, typer.Option(help="Prove equal results in exact real arithmetic, of other programs too.")
    ] = False,
) -> None:
    """Prove that both sides are the same program; no compile, no run."""
    from parity.cli.exact import prove_cases
    from parity.execute import execute
    from parity.matrix import VALUE_CHANNELS
    from parity.report import print_proofs

    if full_size and not topology:
        raise ValueError(
            "--full-size: needs --topology, such as v5p:2x2x1; the published sizes fit no laptop"
        )
    if paranoid and topology:
        raise ValueError(
            "--paranoid: got --topology too, expected one of them; a topology cannot run programs"
        )
    order = make_order(
        select,
        pair,
        setting,
        backend=f"lower:{topology}" if topology else "cpu",
        full_size=full_size,
        channels=("program", *(VALUE_CHANNELS if paranoid else ())),
        paranoid=paranoid,
        json=json,
    )
    if exact:
        raise typer.Exit(PARITY if prove_cases(order, json) else DIFFERENCE)
    record = execute(order, console())
    print_proofs(console(), record)
    _finish(record, json, blocks=BLOCKING | {Verdict.UNPROVED})


def flags(select: Select = None, json: Json = None, pair: Pairs = None, setting: Settings = None) -> None:
    """Flip every declared flag on both sides: each must change both programs, and alike; no compile."""
    from parity.execute import execute

    screen = console()
    record = execute(make_order(select, pair, setting, channels=("flags",), json=json), screen)
    for result in record.results:
        for channel in result.channels.values():
            line = Text(f"{result.case.id}  ").append(str(channel.verdict), "bold")
            screen.print(line.append(f": {channel.detail}"), soft_wrap=True)
    _finish(record, json)


def _finish(record: "Run", json: Path | None, blocks: frozenset[Verdict] = BLOCKING) -> None:
    """Prints the findings and ends with the exit code of the run; a verdict in ``blocks`` is a difference."""
    from parity.report import print_findings

    print_findings(console(), record.results)
    if json:
        console().print(f"report: {json}", soft_wrap=True)
    if record.partial:
        raise typer.Exit(INTERRUPTED)
    found = {channel.verdict for result in record.results for channel in result.channels.values()}
    raise typer.Exit(DIFFERENCE if found & blocks else PARITY)
