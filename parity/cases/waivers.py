"""Waivers: differences that a project accepts, where, and why."""

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Waiver", "read_waivers"]

FIELDS = ("case", "channel", "where", "reason")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiver:
    """A difference that is known and accepted.

    Args:
        reason: why; shown wherever the difference is.
        case: glob of case ids.
        channel: glob of channels.
        where: glob of what a finding is about: a leaf, a loop, an operation; ``*`` for all findings of the channel.

    Raises:
        ValueError: no reason.
    """

    reason: str
    case: str = "*"
    channel: str = "*"
    where: str = "*"

    def __post_init__(self):
        if not self.reason.strip():
            raise ValueError(
                f'waiver of {self.sentence()}: got no reason, expected reason = "why this is accepted"'
            )

    def covers(self, case: str, channel: str, where: str) -> bool:
        """Whether a finding of a channel of a case is accepted."""
        texts = ((case, self.case), (channel, self.channel), (where, self.where))
        return all(fnmatch.fnmatchcase(text, glob) for text, glob in texts)

    def concerns(self, case: str) -> bool:
        """Whether a case is among those that it is for."""
        return fnmatch.fnmatchcase(case, self.case)

    def sentence(self) -> str:
        """Returns what is accepted, without the reason."""
        return f"case {self.case}, channel {self.channel}, where {self.where}"


def read_waivers(tables: Any) -> tuple[Waiver, ...]:
    """Returns the waivers of ``[[tool.parity.waivers]]``.

    Raises:
        ValueError: not a list of tables, an unknown field, a value that is no text, or no reason.
    """
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ValueError(f"waivers: got {tables!r}, expected tables [[tool.parity.waivers]]")
    found = []
    for number, table in enumerate(tables, 1):
        if not isinstance(table, Mapping):
            raise ValueError(f"waivers, number {number}: got {table!r}, expected a table")
        for name, value in table.items():
            if name not in FIELDS or not isinstance(value, str):
                raise ValueError(
                    f"waivers, number {number}: got {name} = {value!r}, expected texts {', '.join(FIELDS)}"
                )
        try:
            found.append(Waiver(**{"reason": "", **table}))
        except ValueError as error:
            raise ValueError(f"waivers, number {number}: {error}") from error
    return tuple(found)
