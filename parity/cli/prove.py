"""``parity prove``: only the proof."""

from typing import Annotated

import typer

from parity.cli.ending import finish
from parity.cli.options import (
    DIFFERENCE,
    PARITY,
    FullSize,
    Json,
    Pairs,
    Part,
    Select,
    Settings,
    Workers,
    console,
    limits,
    make_request,
)
from parity.verdicts import BLOCKING, ChannelResult, Verdict

__all__ = ["prove"]


def prove(
    select: Select = None,
    full_size: FullSize = False,
    topology: Annotated[
        str | None, typer.Option(help="Lower for this TPU slice, which need not exist: v5p:8x8x8.")
    ] = None,
    json: Json = None,
    shard: Part = None,
    pair: Pairs = None,
    setting: Settings = None,
    paranoid: Annotated[bool, typer.Option(help="Run what is proved and require equal bits.")] = False,
    exact: Annotated[
        bool, typer.Option(help="Prove equal results in exact real arithmetic, of other programs too.")
    ] = False,
    ignore_sharding: Annotated[
        bool, typer.Option(help="Leave out sharding annotations, and list those that differ.")
    ] = False,
    workers: Workers = None,
) -> None:
    """Prove that both sides are the same program; runs nothing, and compiles only what is not proved."""
    from parity.channels import Aspect, of_aspect
    from parity.cli.terminal import Reports, Terminal
    from parity.report import print_proofs
    from parity.run.schedule import execute
    from parity.run.shard import Shard

    if full_size and not topology:
        raise ValueError(
            "--full-size: needs --topology, such as v5p:2x2x1; the published sizes fit no laptop"
        )
    if paranoid and topology:
        raise ValueError(
            "--paranoid: got --topology too, expected one of them; a topology cannot run programs"
        )
    if ignore_sharding and (exact or paranoid):
        raise ValueError("--ignore-sharding: got --exact or --paranoid too, expected one of them")
    if workers and (exact or ignore_sharding):
        raise ValueError(
            "--workers: got --exact or --ignore-sharding too, which prove case after case; leave it out"
        )
    reports = Reports.of({"json": json} if json else {})
    request = make_request(
        select,
        pair,
        setting,
        limits(workers=workers),
        backend=f"lower:{topology}" if topology else "cpu",
        full_size=full_size,
        channels=("program", *(of_aspect(Aspect.VALUES) if paranoid else ())),
        paranoid=paranoid,
        shard=Shard.parse(shard) if shard else None,
    )
    if ignore_sharding:
        from parity.cli.modulo import prove_modulo

        raise typer.Exit(PARITY if prove_modulo(request, json) else DIFFERENCE)
    if exact:
        from parity.cli.exact import prove_cases

        raise typer.Exit(PARITY if prove_cases(request, json) else DIFFERENCE)
    terminal = Terminal(console(), reports)
    record = execute(request, terminal)
    print_proofs(console(), record)
    loose = (
        {Verdict.REORDERED}
        if any(_is_twin(result.channels.get("program")) for result in record.results)
        else {}
    )
    finish(record, reports.files, terminal.unwritten, blocks=BLOCKING | {Verdict.UNPROVED, *loose})


def _is_twin(program: ChannelResult | None) -> bool:
    """True if a reordered program should have been proved the same, because its map moves no numbers."""
    from parity.prove.rules.registry import MOVED

    if program is None or program.verdict is not Verdict.REORDERED:
        return False
    return MOVED not in {row["rule"] for row in program.tables.get("rules", ())}
