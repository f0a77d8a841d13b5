"""``parity prove``: only the proof."""

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from parity.cli import options
from parity.cli.options import DIFFERENCE, PARITY, checked_files, console, echo, make_request
from parity.verdicts import BLOCKING, ChannelResult, Verdict, shortened

if TYPE_CHECKING:
    from pathlib import Path

    from parity.run.request import Request

MOST_ANNOTATIONS = 12


def command(
    select: options.Select = None,
    full_size: options.FullSize = False,
    topology: Annotated[
        str | None, typer.Option(help="Lower for this TPU slice, which need not exist: v5p:8x8x8.")
    ] = None,
    json: options.Json = None,
    shard: options.Part = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
    exact: Annotated[
        bool,
        typer.Option(help="Prove equal results in exact real arithmetic, even if the operations differ."),
    ] = False,
    ignore_sharding: Annotated[
        bool, typer.Option(help="Leave out sharding annotations, and list those that differ.")
    ] = False,
    workers: options.Workers = None,
) -> None:
    """Prove that both sides are the same program. Run nothing, and compile only cases without a proof."""
    from parity.cli.terminal import Terminal, finish
    from parity.report.table import print_details, print_proofs, print_table
    from parity.run.schedule import execute

    if full_size and not topology:
        raise ValueError("--full-size: add --topology, such as v5p:2x2x1; the published sizes fit no laptop")
    if ignore_sharding and exact:
        raise ValueError("--ignore-sharding: cannot be combined with --exact; leave one out")
    if workers and ignore_sharding:
        raise ValueError("--workers: --ignore-sharding proves one case at a time; leave it out")
    files = checked_files(json=json)
    request = make_request(
        select,
        pair,
        setting,
        workers=workers,
        backend=f"lower:{topology}" if topology else "cpu",
        full_size=full_size,
        channels=("exact" if exact else "program",),
        prove_exact=exact,
        shard=shard,
    )
    if ignore_sharding:
        raise typer.Exit(_prove_up_to_sharding(request, json))
    terminal = Terminal(files)
    report = execute(request, terminal)
    if exact:
        print_table(console(), report)
        print_details(console(), report.cases)
        finish(report, files, terminal.unwritten)
    print_proofs(console(), report)
    twins = any(_is_twin(case.channels.get("program")) for case in report.cases)
    stricter = {Verdict.UNPROVED, Verdict.REORDERED} if twins else {Verdict.UNPROVED}
    finish(report, files, terminal.unwritten, blocks=BLOCKING | stricter)


def _is_twin(program: ChannelResult | None) -> bool:
    """True if a reordered program should have been proved the same, because its map moves no numbers."""
    from parity.prove.rules.registry import MOVED

    if program is None or program.verdict is not Verdict.REORDERED:
        return False
    return MOVED not in {row["rule"] for row in program.tables.get("rules", ())}


def _prove_up_to_sharding(request: "Request", json: "Path | None") -> int:
    """Proves and prints each case up to sharding; returns the exit code."""
    from parity.compare.evidence import Evidence
    from parity.compare.modulo import prove_modulo_sharding
    from parity.report.records import write_json
    from parity.run.run import raised_gc_threshold

    cases, session = request.open_cases()
    records, holding, start = [], 0, time.perf_counter()
    with contextlib.suppress(KeyboardInterrupt), raised_gc_threshold():
        for case in cases:
            found = prove_modulo_sharding(Evidence.of(case, session))
            proof, annotations, differs = found.proof, found.differing, found.verdict == "differs"
            frontier = [entry.sentence() for entry in proof.frontier]
            holding += not differs
            record = {
                "id": case.id,
                "verdict": found.verdict,
                "rules": dict(proof.rules),
                "operations": proof.operations,
                "seconds": proof.seconds,
                "frontier": frontier,
                "annotations": [row._asdict() for row in annotations],
            }
            records.append(record)
            left, right = proof.operations
            rules = f" (rules: {', '.join(proof.rules)})" if proof.rules else ""
            size = f": {left:,} and {right:,} operations" if left or right else ""
            head = Text(f"{case.id}  ").append(found.verdict, "bold").append(f"{rules}{size}")
            console().print(head, soft_wrap=True)
            texts = [f"{place}: reference {left}, candidate {right}" for place, left, right in annotations]
            texts = shortened(texts, MOST_ANNOTATIONS, "and {} more, which --json lists")
            head = f"annotations differ at {len(annotations)} places"
            for line in (*(frontier if differs else ()), head, *texts):
                echo(f"  {line}")
    seconds = time.perf_counter() - start
    echo(f"{holding} of {len(cases)} same up to sharding in {seconds:.0f} s; no bits are claimed")
    if json:
        write_json({"modulo": "sharding", "cases": records}, json)
        echo(f"report: {json}")
    return PARITY if holding == len(cases) else DIFFERENCE
