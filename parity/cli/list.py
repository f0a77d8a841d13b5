"""``parity list``: pairs, variants, programs, meshes, channels."""

import collections
import textwrap
from typing import Annotated

import typer
from rich.text import Text

from parity.cli import options
from parity.cli.options import console, echo

HEADS = ("channel", "column", "about", "a proof settles it")


def command(
    select: options.Select = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
    channels: Annotated[bool, typer.Option(help="List the channels: what each compares and shows.")] = False,
    coverage: Annotated[bool, typer.Option(help="List the options of configs that no pair varies.")] = False,
) -> None:
    """List pairs, variants, programs and meshes."""
    from parity.cases.case import select as selected
    from parity.cases.settings import collect, parse_settings
    from parity.compare.backends.registry import find, known_backends
    from parity.compare.placement import place

    if channels:
        print(_channels(), end="")
        return

    pairs, cases = collect(pair or (), parse_settings(setting), select=select or ())
    cases = place(selected(cases, select or ()), find("cpu"))
    screen = console()
    if coverage:
        from parity.cases.coverage import unvaried_options, unvaried_text

        found, given = unvaried_options(cases), any(case.config is not None for case in cases)
        nothing = (
            "every option is varied" if given else "no case has a config; give one as twins(..., config=)"
        )
        echo(unvaried_text(found) if found else nothing)
        return
    for found in pairs:
        screen.print(Text(found.name, "bold").append(f"  {found.about}", "dim"))
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for case in cases:
        named = case.id.partition("@")[2]  # without the axes of size one
        groups[case.id.split("/")[0], named or str(case.mesh)].append(case.program)
    fold = textwrap.TextWrapper(width=screen.width, subsequent_indent="  ", break_on_hyphens=False)
    # Rich's tables are slower than collecting all cases.
    lines = [f"{'variant':<40}  {'mesh':<28}  programs"]
    for (variant, mesh), programs in groups.items():
        lines += fold.wrap(f"{variant:<40}  {mesh:<28}  {' '.join(programs)}")
    screen.out("\n".join(lines), highlight=False)
    screen.print(f"{len(cases)} cases; backends: {', '.join(known_backends())}")


def _channels() -> str:
    from parity.channels import CHANNELS

    rows = [(f"`{one.name}`", one.column, one.about, one.settled_by_proof) for one in CHANNELS.values()]
    lines = [" | ".join(row) for row in (HEADS, ("---",) * len(HEADS), *rows)]
    return "".join(f"| {line} |\n" for line in lines)
