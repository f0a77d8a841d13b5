"""``parity convert``: a checkpoint of one side into one of the other."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.options import console

__all__ = ["convert_checkpoint"]


def convert_checkpoint(
    source: Annotated[
        Path, typer.Argument(help="An Orbax checkpoint of one side, or a run with several steps.")
    ],
    dest: Annotated[Path, typer.Argument(help="A new folder.")],
    map: Annotated[Path, typer.Option("--map", help="What `parity map CASE --export FILE` wrote.")],
    to: Annotated[
        str,
        typer.Option(help="The side to write, where names do not tell: linen, nnx, reference, candidate."),
    ] = "",
    root: Annotated[
        str, typer.Option(help="Write this branch of the state alone, such as `model` or `params`.")
    ] = "",
) -> None:
    """Turn a checkpoint of one side into one of the other, bit for bit, through a certified weight map."""
    from parity.builds.convert.conversion import convert
    from parity.builds.convert.exported import read_map

    screen = console()

    def write(words: str) -> None:
        screen.print(words, soft_wrap=True, markup=False, highlight=False)

    done = convert(read_map(map), source, dest, to, root)
    roles = ", ".join(f"{role} {count}" for role, count in done.roles.items())
    write(f"{done.read} ({done.source}) -> {dest} ({done.target})")
    write(
        f"{sum(done.roles.values())} leaves: {roles}; {done.moved} entries transformed; read back: the same bits"
    )
    for words in done.retyped:
        write(f"other integers, the same number: {words}")
    if done.left:
        write(f"left out, RNG state that {done.target} does not keep: {', '.join(done.left)}")
    if done.missing:
        write(f"not in it, RNG state that {done.target} begins by itself: {', '.join(done.missing)}")
