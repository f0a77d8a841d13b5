"""``parity run``: every channel of every case."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli import options
from parity.cli.options import checked_files, console, make_request, rare
from parity.verdicts import ANY_RUNG, BLOCKING, Requirement, Verdict

if TYPE_CHECKING:
    from parity.run.request import CacheMode


def command(
    select: options.Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile and run.")] = "cpu",
    json: options.Json = None,
    html: options.Html = None,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    annotations: options.Annotations = None,
    since: options.Since = None,
    shard: options.Part = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
    paranoid: Annotated[bool, rare(help="Also compile and run proved cases.")] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="RUNG",
            help="Lowest rung that a case must reach: proved, reordered, bitwise, floor, arbitrated or exact; may be "
            "repeated, one of them is enough.",
        ),
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel",
            metavar="NAME",
            help="Compare only this channel; may be repeated. `parity list --channels` lists all.",
        ),
    ] = None,
    full_size: options.FullSize = False,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Find the operation and the module behind each failure.")
    ] = False,
    workers: options.Workers = None,
    processes: Annotated[
        int, rare(min=1, help="Number of processes that run each case together, with jax.distributed.")
    ] = 1,
    ray: Annotated[
        str | None,
        rare(metavar="HOST:PORT", help="Run cases as Ray tasks, on a cluster; `local` starts a Ray here."),
    ] = None,
    cached: options.Cached = False,
    refresh: Annotated[
        bool, rare("--refresh", help="With --cached: recompute all verdicts and cache them.")
    ] = False,
    builtin: Annotated[bool, rare("--builtin", help="Also run the pairs that come with parity.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every finding, waived ones too.")
    ] = False,
    traceback: Annotated[bool, rare(help="Print the traceback of every error.")] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop after the first case that does not pass.")
    ] = False,
) -> None:
    """Run cases and report differences. Print progress, a table and findings; write reports on request."""
    from parity.cli.bisect import bisect_failures
    from parity.cli.terminal import Terminal, finish, read_earlier
    from parity.report.table import print_details, print_table, print_tracebacks
    from parity.run.schedule import execute

    files = checked_files(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    request = make_request(
        select,
        _pairs(select, pair, builtin),
        setting,
        workers=workers,
        backend=backend,
        full_size=full_size,
        channels=_channels(channel),
        paranoid=paranoid,
        required=Requirement.of(require or ANY_RUNG, "--require"),
        processes=processes,
        ray=ray,
        shard=shard,
        fail_fast=fail_fast,
        cache=_cache_mode(cached=cached, refresh=refresh),
        written=tuple(files.values()),
    )
    terminal = Terminal(files, read_earlier(since))
    report = execute(request, terminal)
    print_table(console(), report)
    if channel:
        print_details(console(), report.cases)
    if traceback:
        print_tracebacks(console(), report.cases)
    if bisect and any(case.blocking for case in report.cases):
        report = bisect_failures(report, request)
        terminal.write(report)  # again: the report was written before the bisect, which may be slow
    finish(report, files, terminal.unwritten, blocks=_blocks(request.channels), verbose=verbose)


def _pairs(select: list[str] | None, named: list[str] | None, builtin: bool) -> list[str]:
    from parity.cases.settings import BUILT_IN, must_have_pairs

    if not (select or named or builtin):
        must_have_pairs(Path.cwd())
    return [*(named or ()), *(BUILT_IN if builtin else ())]


def _channels(named: list[str] | None) -> tuple[str, ...]:
    from parity.channels import ALL

    for name in named or ():
        if name not in ALL:
            raise ValueError(f"--channel {name!r}: expected one of {', '.join(ALL)}")
    return tuple(name for name in ALL if name in named) if named else ALL


def _blocks(channels: tuple[str, ...]) -> frozenset[Verdict]:
    """Returns the verdicts that count as a difference; without channels of values also ``unproved``."""
    from parity.channels import Aspect, of_aspect

    return BLOCKING if set(of_aspect(Aspect.VALUES)) <= set(channels) else BLOCKING | {Verdict.UNPROVED}


def _cache_mode(*, cached: bool, refresh: bool) -> "CacheMode":
    from parity.run.request import CacheMode

    if refresh and not cached:
        raise ValueError("--refresh: only with --cached; add it, or leave both out")
    return CacheMode.REFRESH if refresh else CacheMode.REUSE if cached else CacheMode.IGNORE
