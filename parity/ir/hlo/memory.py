"""Memory and cost of a compiled program, as the compiler states them."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

_BYTES = {
    "argument": "argument_size_in_bytes",
    "output": "output_size_in_bytes",
    "temp": "temp_size_in_bytes",
    "alias": "alias_size_in_bytes",
    "peak": "peak_memory_in_bytes",
}
_COST = {"flops": "flops", "bytes_accessed": "bytes accessed"}

QUANTITIES = {**dict.fromkeys(_BYTES, "bytes"), "flops": "operations", "bytes_accessed": "bytes"}
"""Unit of each quantity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory and cost of a program on one device.

    Args:
        values: each quantity of ``QUANTITIES``, or None if the backend does not state it. ``flops`` and
            ``bytes_accessed`` count the body of a loop once, regardless of its trips.
        reasons: the reason for each None.
    """

    values: Mapping[str, int | None]
    reasons: Mapping[str, str]


def read_memory(compiled: Any) -> Memory:
    """Returns the memory and cost of a ``jax.stages.Compiled``, with a reason for each that the backend lacks."""
    values: dict[str, int | None] = dict.fromkeys(QUANTITIES)
    reasons: dict[str, str] = {}
    for analysis, names in (("memory_analysis", _BYTES), ("cost_analysis", _COST)):
        found, problem = _analysed(compiled, analysis)
        for quantity, name in names.items():
            value = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
            if problem:
                reasons[quantity] = problem
            elif value is None:
                reasons[quantity] = f"{analysis} states no {name}"
            elif not math.isfinite(value) or value < 0:
                reasons[quantity] = f"{analysis} states {name} as {value}"
            else:
                values[quantity] = int(value)
    return Memory(values=values, reasons=reasons)


def _analysed(compiled: Any, analysis: str) -> tuple[Any, str]:
    try:
        found = getattr(compiled, analysis)()
    except (NotImplementedError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        return None, f"{analysis} is not available: {reason}"
    found = found[0] if isinstance(found, list) and found else found
    return found, "" if found else f"{analysis} returned nothing"
