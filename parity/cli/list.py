"""``parity list``: pairs, variants, programs, meshes, channels."""

import collections
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from parity.cli import options
from parity.cli.options import console, echo

if TYPE_CHECKING:
    from parity.cases.case import Case, Pair

__all__ = ["list_cases"]

HEADS = ("channel", "column", "compares", "needs", "a proof settles it")
SETTLES = {"lowered": "yes", "compiled": "unless one came for compiled programs", "nothing": "no"}


def list_cases(
    select: options.Select = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
    channels: Annotated[
        bool, typer.Option(help="List the channels: what each compares, needs and shows.")
    ] = False,
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
        for line in _unvaried(pairs, cases):
            echo(line)
        return
    for found in pairs:
        screen.print(Text(found.name, "bold").append(f"  {found.about}", "dim"))
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for case in cases:
        groups[case.id.split("/")[0], str(case.mesh)].append(case.program)
    fold = textwrap.TextWrapper(width=screen.width, subsequent_indent="  ", break_on_hyphens=False)
    # Rich's tables are slower than collecting all cases.
    lines = [f"{'variant':<40}  {'mesh':<28}  programs"]
    for (variant, mesh), programs in groups.items():
        lines += fold.wrap(f"{variant:<40}  {mesh:<28}  {' '.join(programs)}")
    screen.out("\n".join(lines), highlight=False)
    screen.print(f"{len(cases)} cases; backends: {', '.join(known_backends())}")


def _unvaried(pairs: "Sequence[Pair]", cases: "Sequence[Case]") -> list[str]:
    """Returns a sentence for the pairs of each kind of config: the options that none of them varies."""
    from parity.cases.coverage import unvaried

    kinds: dict[Any, dict[str, list[Any]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for pair in pairs:
        if any(case.id.startswith(pair.name) for case in cases):
            for config in pair.configs:
                kinds["" if isinstance(config, Mapping) else type(config)][pair.name].append(config)
    lines = []
    for named in kinds.values():
        found = unvaried(config for configs in named.values() for config in configs)
        if found:
            listed = ", ".join(f"{name}={value}" for name, value in found.items())
            lines.append(f"{', '.join(named)}: no case varies {listed}")
    return lines


def _channels() -> str:
    """Returns a Markdown table with one row per channel, in the order of reports."""
    from parity.channels import CHANNELS

    rows = [
        (f"`{one.name}`", one.column, one.about, str(one.needs), SETTLES[str(one.settled)])
        for one in CHANNELS.values()
    ]
    lines = [" | ".join(row) for row in (HEADS, ("---",) * len(HEADS), *rows)]
    return "".join(f"| {line} |\n" for line in lines)
