"""The channels as a table: the subject of each, its needs, and whether a proof settles it."""

from parity.channels import CHANNELS

__all__ = ["channels_markdown"]

HEADS = ("channel", "column", "compares", "needs", "a proof settles it")


def channels_markdown() -> str:
    """Returns a Markdown table with one row per channel, in the order of reports."""
    rows = [
        (f"`{one.name}`", one.column, one.about, str(one.needs), SETTLES[str(one.settled)])
        for one in CHANNELS.values()
    ]
    lines = [" | ".join(row) for row in (HEADS, ("---",) * len(HEADS), *rows)]
    return "".join(f"| {line} |\n" for line in lines)


SETTLES = {"lowered": "yes", "compiled": "unless one came for compiled programs", "nothing": "no"}
