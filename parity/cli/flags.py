"""``parity flags``: every declared flag flipped on both sides."""

from rich.text import Text

from parity.cli.ending import finish
from parity.cli.options import (
    Json,
    Pairs,
    Select,
    Settings,
    console,
    make_order,
)

__all__ = ["flags"]


def flags(select: Select = None, json: Json = None, pair: Pairs = None, setting: Settings = None) -> None:
    """Flip every declared flag on both sides: each must change both programs, and alike; no compile."""
    from parity.cli.request import execute

    screen = console()
    record = execute(make_order(select, pair, setting, channels=("flags",), json=json), screen)
    for result in record.results:
        for channel in result.channels.values():
            line = Text(f"{result.case.id}  ").append(str(channel.verdict), "bold")
            screen.print(line.append(f": {channel.detail}"), soft_wrap=True)
    finish(record, json)
