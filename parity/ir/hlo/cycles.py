"""Static estimate of a step from the cycles that the TPU compiler writes into its HLO."""

import dataclasses
from typing import Any

from parity.ir.hlo.optimised import optimised_module, visits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cycles:
    """Estimated cycles of one device.

    Args:
        total: sum over instructions of estimated cycles x trips; None if the backend states none, or if some trips are
            unknown.
        in_loops: the part inside loops; None like ``total``.
        reason: the reason for a missing total; empty if there is a total.
    """

    total: int | None
    in_loops: int | None
    reason: str = ""


def read_cycles(compiled: Any) -> Cycles:
    """Returns the sum of the compiler's own estimates; only the TPU compiler makes them.

    Loops count with their trips. Operations inside a fusion count only with the fusion. Operations on another core
    (SparseCore) run in parallel and do not count. Communication has no estimate: the sum compares programs but does not
    predict a time.
    """
    total, inside, count, unknown = 0, 0, 0, 0
    for visit in visits(optimised_module(compiled)):
        if visit.fused or "execution_thread" in visit.computation.attributes:
            continue
        one = visit.instruction
        config = one.backend_config().get("window_config")
        stated = config.get("estimated_cycles") if isinstance(config, dict) else None
        if stated is None:
            continue
        cycles = one.number("estimated_cycles", str(stated))
        count += 1
        if visit.times is None:
            unknown += 1
            continue
        total += cycles * visit.times
        inside += cycles * visit.times * (visit.depth > 0)
    if not count or unknown:
        reason = (
            f"{unknown} estimates are in loops with unknown trips"
            if unknown
            else "the backend states no cycles"
        )
        return Cycles(total=None, in_loops=None, reason=reason)
    return Cycles(total=total, in_loops=inside)
