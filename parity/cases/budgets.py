"""How far the structure of a candidate may be from the reference's, quantity by quantity, and why."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from parity.ir.hlo.memory import QUANTITIES

__all__ = ["BUDGETED", "MEMORY_BUDGETS", "PACKING_BUDGETS", "Budget", "budgets_for", "read_budgets"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """How far a quantity may grow.

    Args:
        ratio: the largest candidate over reference that passes.
        slack: a candidate that needs at most this much more passes whatever the ratio, in the quantity's unit.
        floor: a candidate that needs less passes only if its ratio is at least this; 0 lets it shrink freely.
        reason: why this much.
    """

    ratio: float = 1.0
    slack: int = 0
    floor: float = 0.0
    reason: str = ""

    def allows(self, reference: float, candidate: float) -> bool:
        """Whether the candidate's number is within the budget of the reference's."""
        if reference == candidate:
            return True
        if candidate < reference:
            return candidate >= reference * self.floor
        return candidate <= max(reference * self.ratio, reference + self.slack)

    def sentence(self) -> str:
        """Returns what is allowed and why."""
        slack = f" or {self.slack:,} more" if self.slack else ""
        return f"{self.ratio:g} x{slack}" + (f" ({self.reason})" if self.reason else "")


_SMALL = 1_024

MEMORY_BUDGETS: Mapping[str, Budget] = {
    "argument": Budget(floor=1.0, reason="equal state and inputs"),
    "output": Budget(floor=1.0, reason="equal state and results"),
    "temp": Budget(
        ratio=1.01,
        slack=_SMALL,
        reason="buffer assignment packs equal programs alike to within a percent, and aligns a few scalars",
    ),
}
"""What is compared unless the caller says otherwise; donation has a comparison of its own."""

PACKING_BUDGETS: Mapping[str, Budget] = {
    **MEMORY_BUDGETS,
    "temp": Budget(
        ratio=1.05,
        slack=_SMALL,
        reason="the order of arguments moves the packing of buffers, in either direction",
    ),
}
"""How far the order of arguments may move what programs need that are proved to be the same."""

BUDGETED: Mapping[str, tuple[str, ...]] = {
    "memory": tuple(QUANTITIES),
    "loops": ("count", "carry_bytes"),
    "collectives": ("count", "bytes"),
    "speed": ("compile", "step"),
}
"""Channel -> what of it a project or a case may budget."""

_RATIOS = ("ratio", "reason")
"""All that a budget of ``speed`` has: times are compared as ratios, never by themselves."""
_FIELDS = {"ratio": (int, float), "slack": (int,), "floor": (int, float), "reason": (str,)}


def budgets_for(channel: str, budgets: Mapping[str, Budget]) -> dict[str, Budget]:
    """Returns the budgets of one channel by quantity.

    Args:
        channel: such as ``memory``.
        budgets: by ``channel.quantity``.
    """
    return {name.split(".")[1]: budget for name, budget in budgets.items() if name.startswith(f"{channel}.")}


def read_budgets(table: Any) -> dict[str, Budget]:
    """Returns budgets by ``channel.quantity`` from ``{channel: {quantity: {ratio, slack, floor, reason}}}``.

    Raises:
        ValueError: an unknown channel, quantity or field, a value of the wrong kind, or no reason.
    """
    found: dict[str, Budget] = {}
    for channel, quantities in _table(table, "budgets").items():
        if channel not in BUDGETED:
            raise ValueError(f"budgets.{channel}: expected one of {', '.join(BUDGETED)}")
        for quantity, fields in _table(quantities, f"budgets.{channel}").items():
            name = f"{channel}.{quantity}"
            if quantity not in BUDGETED[channel]:
                raise ValueError(f"budgets.{name}: expected one of {', '.join(BUDGETED[channel])}")
            allowed = "ratio, reason" if channel == "speed" else "ratio, slack (whole), floor, reason"
            for field, value in _table(fields, f"budgets.{name}").items():
                kinds = _FIELDS.get(field) if channel != "speed" or field in _RATIOS else None
                if kinds is None or not isinstance(value, kinds) or isinstance(value, bool):
                    raise ValueError(f"budgets.{name}: got {field} = {value!r}, expected {allowed}")
            if not fields.get("reason"):
                raise ValueError(f'budgets.{name}: got no reason, expected reason = "why this much"')
            found[name] = Budget(**fields)
    return found


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: got {value!r}, expected a table")
    return value
