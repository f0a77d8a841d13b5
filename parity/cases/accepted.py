"""Accepted differences: waivers, with a scope and a reason, and budgets of structural quantities."""

import datetime
import fnmatch
import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from parity.cases.tables import Table, read, unknown


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
    """Raises ValueError unless a day is empty or written like 2027-01-31."""
    try:
        datetime.date.fromisoformat(day or "2000-01-01")
    except ValueError as error:
        raise ValueError(f"{where}: got expires = {day!r}, expected a day such as 2027-01-31") from error


def past(day: str) -> bool:
    """True if a day, as in `check_day`, has passed; always False for an empty one."""
    return bool(day) and datetime.date.fromisoformat(day) < datetime.date.today()


class Budget(Table, frozen=True, kw_only=True):
    """The largest allowed change of a quantity.

    Args:
        ratio: the largest candidate over reference that passes.
        slack: a candidate that needs at most this much more passes regardless of the ratio, in the quantity's unit.
        floor: a candidate that needs less passes only if its ratio is at least this; 0 allows any reduction.
        reason: justification of the budget.

    Raises:
        ValueError: a bound is negative, infinite or not a number.
    """

    ratio: float = 1.0
    slack: int = 0
    floor: float = 0.0
    reason: str = ""

    def __post_init__(self):
        for name in ("ratio", "slack", "floor"):
            if not 0 <= (bound := getattr(self, name)) < math.inf:
                raise ValueError(f"{name}: got {bound}, expected a finite number that is not negative")

    def allows(self, reference: float, candidate: float) -> bool:
        """True if the candidate's number is within the budget of the reference's."""
        if reference == candidate:
            return True
        if candidate < reference:
            return candidate >= reference * self.floor
        return candidate <= max(reference * self.ratio, reference + self.slack)

    def sentence(self) -> str:
        """Returns the allowed change and the reason."""
        slack = f" or {self.slack:,} more" if self.slack else ""
        return f"{self.ratio:g} x{slack}" + (f" ({self.reason})" if self.reason else "")


_PACKED = "buffer assignment packs equal programs to within a percent of each other, and aligns a few scalars"
MEMORY_BUDGETS: Mapping[str, Budget] = {
    "argument": Budget(floor=1.0, reason="equal state and inputs"),
    "output": Budget(floor=1.0, reason="equal state and results"),
    "temp": Budget(ratio=1.01, slack=1_024, reason=_PACKED),
}
"""Default budgets of the channel ``memory``; donation has a separate comparison."""

_FUSED = "of two programs, fusion keeps some small buffers more in one: kilobytes are no evidence"
UNLIKE_BUDGETS = {**MEMORY_BUDGETS, "temp": Budget(ratio=1.01, slack=16 * 1_024, reason=_FUSED)}
"""Budgets of programs that are not proved to be one."""

_MOVED = "the order of arguments moves the packing of buffers, in either direction"
PACKING_BUDGETS = {**MEMORY_BUDGETS, "temp": Budget(ratio=1.05, slack=1_024, reason=_MOVED)}
"""Budgets of proved programs whose arguments differ in order, which changes buffer packing."""


def _budgeted() -> Mapping[str, tuple[str, ...]]:
    """Returns the quantities that a project or a case may budget, by channel."""
    from parity.ir.hlo.memory import QUANTITIES  # a command without budgets does not need it

    return {
        "memory": tuple(QUANTITIES),
        "loops": ("count", "carry_bytes"),
        "collectives": ("count", "bytes"),
        "speed": ("compile", "step"),
    }


def budgets_for(channel: str, budgets: Mapping[str, Budget]) -> dict[str, Budget]:
    """Returns the budgets of one channel by quantity."""
    return {name.split(".")[1]: budget for name, budget in budgets.items() if name.startswith(f"{channel}.")}


_Budgets = dict[str, dict[str, dict[str, Budget]]]


def read_budgets(table: Any, where: str = "budgets") -> dict[str, Budget]:
    """Returns budgets by ``channel.quantity`` from ``{channel: {quantity: {ratio, slack, floor, reason}}}``.

    Raises:
        ValueError: an unknown channel, quantity or field, a value of the wrong type, or no reason.
    """
    found: dict[str, Budget] = {}
    for channel, quantities in read(_Budgets, {where: table})[where].items():
        budgeted = _budgeted()
        if channel not in budgeted:
            raise ValueError(f"{where}: {unknown(channel, budgeted)}")
        for quantity, budget in quantities.items():
            if quantity not in budgeted[channel]:
                raise ValueError(f"{where}.{channel}: {unknown(quantity, budgeted[channel])}")
            name = f"{channel}.{quantity}"
            if not budget.reason.strip():
                raise ValueError(f'{where}.{name}: got no reason, expected reason = "why this much"')
            size = next((field for field in ("slack", "floor") if getattr(budget, field)), "")
            if size and channel == "speed":  # times are compared only as ratios
                got = f"{size} = {getattr(budget, size):g}"
                raise ValueError(f"{where}.{name}: got {got}, expected ratio, reason")
            found[name] = budget
    return found
