"""Waivers: differences that a project accepts, with a scope and a reason."""

import datetime
import fnmatch
from typing import Annotated

import msgspec

from parity.cases.tables import Table

__all__ = ["Waiver", "check_day", "past"]


class Waiver(Table, frozen=True, kw_only=True):
    """A known and accepted difference.

    Args:
        reason: why it is accepted; shown with the difference.
        case: glob of case ids.
        channel: glob of channels.
        where: glob of a finding's subject: a leaf, a loop, an operation; ``*`` for all findings of the channel.
        expires: the last day on which it holds, such as ``2027-01-31``; empty for no end.

    Raises:
        ValueError: no reason, or no valid date.
    """

    reason: Annotated[str, msgspec.Meta(description='"why this is accepted"')]
    case: str = "*"
    channel: str = "*"
    where: str = "*"
    expires: str = ""

    def __post_init__(self):
        if not self.reason.strip():
            raise ValueError(
                f'waiver of {self.sentence()}: got no reason, expected reason = "why this is accepted"'
            )
        check_day(self.expires, f"waiver of {self.sentence()}")

    @property
    def expired(self) -> bool:
        """True if its last day has passed."""
        return past(self.expires)

    def fields(self) -> dict[str, str]:
        """Returns its fields, without empty ones."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}

    def covers(self, case: str, channel: str, where: str) -> bool:
        """True if a finding of a channel of a case is accepted."""
        texts = ((case, self.case), (channel, self.channel), (where, self.where))
        return not self.expired and all(fnmatch.fnmatchcase(text, glob) for text, glob in texts)

    def concerns(self, case: str) -> bool:
        """True if the waiver applies to a case."""
        return fnmatch.fnmatchcase(case, self.case)

    def sentence(self) -> str:
        """Returns the accepted difference, without the reason."""
        return f"case {self.case}, channel {self.channel}, where {self.where}"


def check_day(day: str, where: str) -> None:
    """Checks that a day is empty or written like 2027-01-31.

    Args:
        day: the text.
        where: the setting that holds it.

    Raises:
        ValueError: the text has another form.
    """
    try:
        datetime.date.fromisoformat(day or "2000-01-01")
    except ValueError as error:
        raise ValueError(f"{where}: got expires = {day!r}, expected a day such as 2027-01-31") from error


def past(day: str) -> bool:
    """True if a day, as in `check_day`, has passed; always False for an empty one."""
    return bool(day) and datetime.date.fromisoformat(day) < datetime.date.today()
