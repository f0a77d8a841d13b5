"""``parity prove``: only the proof."""

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from parity.cli import options
from parity.cli.options import DIFFERENCE, PARITY, checked_files, console, echo, make_request
from parity.verdicts import BLOCKING, ChannelResult, Verdict, shortened

if TYPE_CHECKING:
    from pathlib import Path

    from parity.compare.evidence import Evidence
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
    from parity.report.table import print_proofs
    from parity.run.schedule import execute

    if full_size and not topology:
        raise ValueError("--full-size: add --topology, such as v5p:2x2x1; the published sizes fit no laptop")
    if ignore_sharding and exact:
        raise ValueError("--ignore-sharding: cannot be combined with --exact; leave one out")
    if workers and (exact or ignore_sharding):
        raise ValueError("--workers: --exact and --ignore-sharding prove one case at a time; leave it out")
    files = checked_files(json=json)
    request = make_request(
        select,
        pair,
        setting,
        workers=workers,
        backend=f"lower:{topology}" if topology else "cpu",
        full_size=full_size,
        channels=("program",),
        shard=shard,
    )
    if ignore_sharding or exact:
        raise typer.Exit(_prove_each(request, json, exact=exact))
    terminal = Terminal(files)
    report = execute(request, terminal)
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


class _Shown(NamedTuple):
    """The proof of one case: its record, True if it holds, the verdict, the rest of that line, and further lines."""

    record: dict[str, Any]
    holds: bool
    verdict: str
    size: str
    lines: list[str]


def _prove_each(request: "Request", json: "Path | None", *, exact: bool) -> int:
    """Proves and prints each case, in exact arithmetic or up to sharding; returns the exit code."""
    from parity.compare.evidence import Evidence
    from parity.report.records import write_json
    from parity.run.run import raised_gc_threshold

    cases, session = request.open_cases()
    records, holding, start = [], 0, time.perf_counter()
    with contextlib.suppress(KeyboardInterrupt), raised_gc_threshold():
        for case in cases:
            shown = (_exactly if exact else _up_to_sharding)(Evidence.of(case, session))
            records.append({"id": case.id, **shown.record})
            holding += shown.holds
            head = Text(f"{case.id}  ").append(shown.verdict, "bold").append(shown.size)
            console().print(head, soft_wrap=True)
            for line in shown.lines:
                echo(f"  {line}")
    seconds = time.perf_counter() - start
    words, end = ("exact", "") if exact else ("same up to sharding", "; no bits are claimed")
    echo(f"{holding} of {len(cases)} {words} in {seconds:.0f} s{end}")
    if json:
        same = {"modulo": "sharding", "cases": records}
        write_json({"exact": records, "seconds": seconds} if exact else same, json)
        echo(f"report: {json}")
    return PARITY if holding == len(cases) else DIFFERENCE


def _exactly(work: "Evidence") -> _Shown:
    began = time.perf_counter()
    found = work.exact_proof
    seconds = time.perf_counter() - began
    verdict = "exact" if found.proved else "refused" if found.refusal else "differs"
    size = f": {found.steps:,} steps, {found.terms:,} terms, {found.seconds:.1f} s of {seconds:.1f} s"
    lines = [f"assumes: {assumption}" for assumption in found.assumptions]
    lines += filter(None, [found.refusal or found.difference])
    return _Shown({**dataclasses.asdict(found), "total": seconds}, found.proved, verdict, size, lines)


def _up_to_sharding(work: "Evidence") -> _Shown:
    from parity.compare.modulo import prove_modulo_sharding

    found = prove_modulo_sharding(work)
    proof, annotations = found.proof, found.differing
    frontier = [entry.sentence() for entry in proof.frontier]
    record = {
        "verdict": found.verdict,
        "rules": dict(proof.rules),
        "operations": proof.operations,
        "seconds": proof.seconds,
        "frontier": frontier,
        "annotations": [row._asdict() for row in annotations],
    }
    size = (
        f": {proof.operations[0]:,} and {proof.operations[1]:,} operations" if any(proof.operations) else ""
    )
    rules = f" (rules: {', '.join(proof.rules)})" if proof.rules else ""
    holds = found.verdict != "differs"
    lines = [] if holds else frontier
    lines = [*lines, f"annotations differ at {len(annotations)} places"]
    texts = [f"{place}: reference {left}, candidate {right}" for place, left, right in annotations]
    lines += shortened(texts, MOST_ANNOTATIONS, "and {} more, which --json lists")
    return _Shown(record, holds, found.verdict, f"{rules}{size}", lines)
