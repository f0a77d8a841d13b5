"""``parity mutants``: every planted bug against every channel."""

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
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Also try mutants that the file of --json already has.")
    ] = False,
) -> None:
    """Plant bugs and report which channels catch them. Print the kill matrix, survivors first."""
    import os

    from parity.compare.backends.environment import describe_environment
    from parity.mutants.matrix import as_json, as_markdown, print_matrix, read_outcomes, succeeded
    from parity.mutants.mutant import PREFIX, choose, read_mutants
    from parity.mutants.trial import try_mutants
    from parity.report.records import write_json, write_text
    from parity.run.request import Shard

    checked_files(json=json, markdown=markdown)
    every, root = read_mutants(*(folders or [Path("tests/mutants")])), Path.cwd()
    chosen = choose(every, select or ())
    chosen = Shard.parse(shard).take(chosen) if shard else chosen
    before = read_outcomes(json) if json else {}
    screen, outcomes, tried, environment = console(), dict(before), [], describe_environment()
    known = {} if refresh else before

    def keep() -> None:
        if json:
            ids = [one.id for one in every]
            ids += [id for id in outcomes if id.startswith(PREFIX) and id not in ids]  # of another run
            write_json(as_json([outcomes[id] for id in ids if id in outcomes], environment), json)

    trials = try_mutants(chosen, root, known, workers=workers or os.cpu_count() or 1, limit=seconds)
    try:
        for outcome in trials:
            outcomes[outcome.id] = outcome
            tried.append(outcome)
            by = f" by {', '.join(outcome.by)}" if outcome.by else ""
            line = f"[{len(tried)}/{len(chosen)}] {outcome.id} {outcome.status}{by}"
            echo(line)
            keep()
    except KeyboardInterrupt:
        trials.close()
        print_matrix(screen, tried)
        echo(f"interrupted: {len(tried)} of {len(chosen)}; repeat the command with --json to continue")
        raise typer.Exit(INTERRUPTED) from None
    print_matrix(screen, tried)
    if markdown:
        write_text(as_markdown(tried, every), markdown)
    raise typer.Exit(PARITY if succeeded(tried) else DIFFERENCE)
