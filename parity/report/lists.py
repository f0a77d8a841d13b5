"""Lists of `parity list` and `parity map`: channels, entries of a weight map."""

import os.path
from collections.abc import Sequence

from rich.text import Text

from parity.builds.weights.map import strip_container
from parity.channels import CHANNELS
from parity.compare.certificate import Certified

__all__ = ["channels_markdown", "map_line"]

HEADS = ("channel", "column", "compares", "needs", "a proof settles it")
SETTLES = {"lowered": "yes", "compiled": "unless one came for compiled programs", "nothing": "no"}


def channels_markdown() -> str:
    """Returns a Markdown table with one row per channel, in the order of reports."""
    rows = [
        (f"`{one.name}`", one.column, one.about, str(one.needs), SETTLES[str(one.settled)])
        for one in CHANNELS.values()
    ]
    lines = [" | ".join(row) for row in (HEADS, ("---",) * len(HEADS), *rows)]
    return "".join(f"| {line} |\n" for line in lines)


def map_line(certified: Certified) -> Text:
    """Returns one entry of a map as text: leaves, transform, kind of match and confirmation."""
    entry = certified.entry
    reference, candidate = _brief(entry.reference), _brief(entry.candidate)
    line = Text(f"  {reference}")
    line.append(f"  {entry.transform}" if reference == candidate else f"  -> {candidate}  {entry.transform}")
    line.append(f"; by {entry.matched_by}; ", "dim")
    return line.append(certified.confirmed_by, "bold red" if certified.contradicted else "green")


def _brief(paths: Sequence[str]) -> str:
    """Returns one name, or ``layers/{0..3}/mlp`` for several that differ at one place."""
    names = [strip_container(path) for path in paths]
    if len(names) == 1:
        return names[0]
    head = os.path.commonprefix(names)
    tail = os.path.commonprefix([name[len(head) :][::-1] for name in names])[::-1]
    middle = [name[len(head) : len(name) - len(tail)] for name in names]
    return f"{head}{{{middle[0]}..{middle[-1]}}}{tail}"
