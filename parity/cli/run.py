"""``parity run``: every channel of every case."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli.ending import finish
from parity.cli.help import RARE
from parity.cli.options import (
    HARNESS,
    PARITY,
    Annotations,
    CompileGib,
    CompileSeconds,
    FullSize,
    Html,
    Json,
    Junit,
    Markdown,
    NoCache,
    Pairs,
    Part,
    Select,
    Settings,
    Since,
    Workers,
    asked_forms,
    console,
    limits,
    make_request,
)
from parity.verdicts import ANY_RUNG, BLOCKING, Requirement, Verdict

if TYPE_CHECKING:
    from parity.run.last_failed import LastFailed
    from parity.run.request import CacheMode

__all__ = ["run"]


def run(
    select: Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile and run.")] = "cpu",
    json: Json = None,
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
    annotations: Annotations = None,
    since: Since = None,
    shard: Part = None,
    pair: Pairs = None,
    setting: Settings = None,
    paranoid: Annotated[
        bool, typer.Option(help="Compile and run also what is proved.", rich_help_panel=RARE)
    ] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="RUNG",
            help="The lowest rung any case may rest on: proved, reordered, bitwise, floor, arbitrated, exact; "
            "may be repeated, any is enough.",
        ),
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel",
            help="Only this channel; may be repeated. `parity list --channels` shows all.",
        ),
    ] = None,
    full_size: FullSize = False,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Follow each failure to the operation and the module behind it.")
    ] = False,
    workers: Workers = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1, help="Processes that run each case together, under jax.distributed.", rich_help_panel=RARE
        ),
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:PORT]",
            help="Cases as Ray tasks, on a cluster or on a Ray of this machine's own.",
            rich_help_panel=RARE,
        ),
    ] = None,
    cached: Annotated[
        bool,
        typer.Option("--cached", help="Reuse the verdicts of passed cases, as long as nothing has changed."),
    ] = False,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh", help="With --cached: recompute all verdicts, and cache them.", rich_help_panel=RARE
        ),
    ] = False,
    verify_cache: Annotated[
        bool,
        typer.Option(
            "--verify-cache",
            help="With --cached: recompute a tenth of the cached verdicts; exit 3 if one differs.",
            rich_help_panel=RARE,
        ),
    ] = False,
    no_cache: NoCache = False,
    compile_gib: CompileGib = None,
    compile_seconds: CompileSeconds = None,
    builtin: Annotated[
        bool,
        typer.Option(
            "--builtin",
            help="The pairs that come with parity, beside those that are named.",
            rich_help_panel=RARE,
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every finding, also the waived ones.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option(help="Print the traceback of every error.", rich_help_panel=RARE)
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--pdb", help="Open Python's debugger where a side raised; in one process.", rich_help_panel=RARE
        ),
    ] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End the run with the first case that does not pass.")
    ] = False,
    last_failed: Annotated[
        bool,
        typer.Option(
            "--last-failed",
            help="Only cases that did not pass when they last ran here.",
        ),
    ] = False,
) -> None:
    """Run cases: live progress, a table, findings, and reports on demand."""
    from parity.cli.bisect import bisect_failures
    from parity.cli.debugger import check_debuggable, open_debugger
    from parity.cli.terminal import Reports, Terminal
    from parity.report import print_details, print_table, print_tracebacks
    from parity.run.last_failed import LastFailed
    from parity.run.schedule import execute
    from parity.run.shard import Shard

    forms = asked_forms(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    latest = LastFailed.of(Path.cwd(), _same_cases(backend, setting, full_size, channel))
    if debug:
        workers = check_debuggable(workers, processes, ray)
    request = make_request(
        select,
        _pairs(select, pair, builtin),
        setting,
        limits(no_cache=no_cache, workers=workers, compile_gib=compile_gib, compile_seconds=compile_seconds),
        backend=backend,
        full_size=full_size,
        channels=_channels(channel),
        paranoid=paranoid,
        required=Requirement.of(require or ANY_RUNG, "--require"),
        processes=processes,
        ray=ray,
        shard=Shard.parse(shard) if shard else None,
        fail_fast=fail_fast,
        cache=_cache_mode(cached=cached, refresh=refresh, verify=verify_cache),
        only=_failed(latest, shard) if last_failed else None,
        written=tuple(forms.values()),
    )
    reports = Reports.of(forms, since)
    terminal = Terminal(console(), reports, open_debugger if debug else lambda error: None)
    record = execute(request, terminal)
    latest.keep(record.results)
    print_table(console(), record)
    if channel:
        print_details(console(), record.results)
    if traceback:
        print_tracebacks(console(), record.results)
    unwritten = terminal.unwritten
    if bisect and (followed := bisect_failures(record.results, request)):
        record.followed = followed
        unwritten = reports.write(
            record
        )  # again: the run's report was written before, in case a bisect is slow
    for words in record.disagreements:
        console().print(f"cache: {words}", style="bold red", soft_wrap=True, markup=False)
    if record.disagreements:
        raise typer.Exit(HARNESS)
    finish(record, forms, unwritten, blocks=_blocks(request.channels), verbose=verbose)


def _same_cases(
    backend: str, setting: list[str] | None, full_size: bool, channel: list[str] | None
) -> tuple[object, ...]:
    """Returns the options that change the cases behind the same ids."""
    from parity.cases.settings import parse_settings

    return backend, tuple(parse_settings(setting).items()), full_size, channel or ()


def _failed(latest: "LastFailed", shard: str | None) -> frozenset[str]:
    """Returns the cases that did not pass in their last run here; ends the command if all passed.

    Raises:
        ValueError: nothing has run yet, or ``--shard`` is given.
    """
    if shard:
        raise ValueError("--last-failed: got --shard, whose parts run elsewhere; leave one of them out")
    failed = latest.failed()
    if failed is None:
        raise ValueError("--last-failed: nothing has run in this project yet; leave it out")
    if not failed:
        console().print("--last-failed: all cases that ran last passed; nothing to run", soft_wrap=True)
        raise typer.Exit(PARITY)
    return failed


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


def _cache_mode(*, cached: bool, refresh: bool, verify: bool) -> "CacheMode":
    from parity.run.request import CacheMode

    if (refresh or verify) and not cached:
        raise ValueError(
            "--refresh, --verify-cache: only with --cached; without it all verdicts are computed"
        )
    if refresh and verify:
        raise ValueError(
            "--refresh and --verify-cache: expected one of them; --refresh leaves nothing to verify"
        )
    if not cached:
        return CacheMode.IGNORE
    return CacheMode.REFRESH if refresh else CacheMode.VERIFY if verify else CacheMode.REUSE
