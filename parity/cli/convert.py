"""``parity convert``: a checkpoint of one side into one of the other."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import echo


def command(
    source: Annotated[
        Path, typer.Argument(help="An Orbax checkpoint of one side, or a folder with those of several steps.")
    ],
    dest: Annotated[Path, typer.Argument(help="A new folder.")],
    map: Annotated[
        Path, typer.Option("--map", help="The weight map that `parity map CASE --export FILE` wrote.")
    ],
    to: Annotated[
        str, typer.Option(help="Side to write, if names leave it open: linen, nnx, reference, candidate.")
    ] = "",
    root: Annotated[
        str, typer.Option(help="Write only this branch of the state, such as `model` or `params`.")
    ] = "",
) -> None:
    """Convert a checkpoint of one side to the other. The weight map must be certified; all bits are kept."""
    from parity.builds.convert.conversion import convert
    from parity.builds.convert.exported import read_map

    done = convert(read_map(map), source, dest, to, root)
    roles = ", ".join(f"{role} {count}" for role, count in done.roles.items())
    echo(f"{done.read} ({done.source}) -> {dest} ({done.target})")
    echo(
        f"{sum(done.roles.values())} leaves: {roles}; {done.moved} entries transformed; read back: the same bits"
    )
    for words in done.retyped:
        echo(f"another integer type, the same values: {words}")
    if done.left:
        echo(f"left out: RNG state that {done.target} does not have: {', '.join(done.left)}")
    if done.missing:
        echo(f"not written: RNG state that {done.target} initialises itself: {', '.join(done.missing)}")
