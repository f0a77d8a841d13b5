"""The channels as a table: what each compares, needs, and what a proof leaves of it."""

from parity.channels import CHANNELS

__all__ = ["channels_markdown"]

HEADS = ("channel", "column", "compares", "needs", "a proof settles it")


def channels_markdown() -> str:
    """Returns a Markdown table, a row a channel in the order of reports."""
    rows = [
        (f"`{one.name}`", one.column, one.about, str(one.needs), SETTLES[str(one.settled)])
        for one in CHANNELS.values()
    ]
    lines = [" | ".join(row) for row in (HEADS, ("---",) * len(HEADS), *rows)]
    return "".join(f"| {line} |\n" for line in lines)


SETTLES = {"lowered": "yes", "compiled": "unless one came for compiled programs", "nothing": "no"}
