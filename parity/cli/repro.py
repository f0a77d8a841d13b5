"""``parity repro``: a folder that shows a failure elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import DIFFERENCE, PARITY, Pairs, Settings, console, parse_settings

__all__ = ["repro"]


def repro(
    case: Annotated[str, typer.Argument(help="The id of a case that fails, or what selects it alone.")],
    folder: Annotated[Path, typer.Option("--repro", help="Where to write; a new folder.")] = Path("repro"),
    pair: Pairs = None,
    setting: Settings = None,
) -> None:
    """Write a folder that shows a failure where only this package is installed."""
    from parity.bisect.judge import signature_of
    from parity.bisect.repro import ReproSpec, check_free, write_repro
    from parity.cli.bisect import one_case
    from parity.compare.comparison import Session
    from parity.run.run import run_case

    check_free(folder)
    given = parse_settings(setting)
    found = one_case(case, pair, given)
    signature = signature_of(run_case(found, Session()))
    if signature is None:
        console().print(f"{found.id}: nothing fails: nothing to show", soft_wrap=True, markup=False)
        raise typer.Exit(PARITY)
    write_repro(folder, ReproSpec(case=found, signature=signature, pairs=tuple(pair or ()), settings=given))
    words = f"{found.id}: {signature}\nrepro: {folder}; python {folder / 'repro.py'} shows it again"
    console().print(words, soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(DIFFERENCE)
