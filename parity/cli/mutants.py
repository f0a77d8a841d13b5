"""``parity mutants``: every planted bug against every channel."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console, echo


def command(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders with *.toml files of mutants. Default: tests/mutants."),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Globs or prefixes of ids, cases or origins.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", help="Try one part of the mutants, such as 3/8.")
    ] = None,
    json: options.Json = None,
    markdown: options.Markdown = None,
    workers: options.Workers = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Time limit of one mutant, in seconds.")
    ] = 600,
) -> None:
    """Plant bugs and report which channels catch them. Print the kill matrix, survivors first."""
    import os

    from parity.compare.backends.environment import describe_environment
    from parity.mutants.matrix import as_json, as_markdown, print_matrix, succeeded
    from parity.mutants.mutant import choose, read_mutants
    from parity.mutants.trial import try_mutants
    from parity.report.records import write_json, write_text
    from parity.run.request import Shard

    checked_files(json=json, markdown=markdown)
    every = read_mutants(*(folders or [Path("tests/mutants")]))
    chosen = choose(every, select or ())
    chosen = Shard.parse(shard).take(chosen) if shard else chosen
    tried = []
    trials = try_mutants(chosen, Path.cwd(), workers=workers or os.cpu_count() or 1, limit=seconds)
    with contextlib.suppress(KeyboardInterrupt):
        for outcome in trials:
            tried.append(outcome)
            by = f" by {', '.join(outcome.by)}" if outcome.by else ""
            echo(f"[{len(tried)}/{len(chosen)}] {outcome.id} {outcome.status}{by}")
    trials.close()
    print_matrix(console(), tried)
    if json:
        write_json(as_json(tried, describe_environment()), json)
    if len(tried) < len(chosen):
        echo(f"interrupted: {len(tried)} of {len(chosen)}")
        raise typer.Exit(INTERRUPTED)
    if markdown:
        write_text(as_markdown(tried, every), markdown)
    raise typer.Exit(PARITY if succeeded(tried) else DIFFERENCE)
