"""``parity mutants``: every planted bug against every channel."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, Json, Markdown, Workers, console

__all__ = ["mutants"]


def mutants(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders with *.toml files of mutants. Default: tests/mutants."),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Globs or prefixes of ids, cases or origins.")
    ] = None,
    shard: Annotated[str | None, typer.Option("--shard", help="Try one part of them, such as 3/8.")] = None,
    json: Json = None,
    markdown: Markdown = None,
    workers: Workers = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Time that one may take.")] = 600,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Try also the mutants that the file of --json has.")
    ] = False,
) -> None:
    """Plant bugs, one by one, and see which channels catch them: the kill matrix, survivors first."""
    import os

    from parity.compare.backends.environment import describe_environment
    from parity.mutants import (
        as_json,
        as_markdown,
        print_matrix,
        read_mutants,
        read_outcomes,
        succeeded,
        try_mutants,
    )
    from parity.mutants.mutant import PREFIX, choose
    from parity.report import write_json, write_text
    from parity.report.records import check_writable
    from parity.run.shard import Shard

    for path, option in ((json, "--json"), (markdown, "--markdown")):
        if path:
            check_writable(path, option)
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
            screen.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)
            keep()
    except KeyboardInterrupt:
        trials.close()
        print_matrix(screen, tried)
        screen.print(f"interrupted: {len(tried)} of {len(chosen)}; the same command goes on, with --json")
        raise typer.Exit(INTERRUPTED) from None
    print_matrix(screen, tried)
    if markdown:
        write_text(as_markdown(tried, every), markdown)
    raise typer.Exit(PARITY if succeeded(tried) else DIFFERENCE)
