"""Walk of a module from its entry in execution order, with the trips and depth of the loops around."""

import dataclasses

from parity.ir.hlo.hlo import Computation, HloModule, Instruction
from parity.ir.hlo.hlo_trips import hlo_trips
from parity.ir.location import SourceLocation

__all__ = ["Visit", "visits"]

_SCALAR_CALLERS = frozenset(
    {
        "all-reduce",
        "map",
        "reduce",
        "reduce-scatter",
        "reduce-window",
        "scatter",
        "select-and-scatter",
        "sort",
        "topk",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Visit:
    """An instruction as reached from the entry.

    Args:
        computation: the computation that holds it.
        instruction: the instruction.
        times: product of the trips of the loops around it; None if some are unknown.
        depth: number of loops around it.
        caller: source of the call that leads there, for instructions without metadata.
        fused: True if it is part of a fusion.
    """

    computation: Computation
    instruction: Instruction
    times: int | None
    depth: int
    caller: SourceLocation
    fused: bool


def visits(module: HloModule) -> list[Visit]:
    """Returns every instruction reached from the entry, once per call site.

    The scalar functions of reductions, sorts and scatters are not entered. All branches of a conditional are included.

    Args:
        module: a parsed module.

    Raises:
        ValueError: a loop of the module is inconsistent.
    """
    found: list[Visit] = []
    start = module.computations[module.entry]
    waiting: list[tuple[Computation, int | None, int, SourceLocation, bool]] = [
        (start, 1, 0, SourceLocation(), False)
    ]
    while waiting:
        computation, times, depth, caller, fused = waiting.pop()
        inner = []
        for one in computation.instructions:
            found.append(Visit(computation, one, times, depth, caller, fused))
            if one.base in _SCALAR_CALLERS or one.phase in ("update", "done") or not one.called():
                continue
            place = module.provenance(one, caller)
            if one.opcode == "while":
                trips = hlo_trips(module, computation, one)
                inside = None if times is None or trips is None else times * trips
                inner += [
                    (module.computations[name], inside, depth + 1, place, fused) for _, name in one.called()
                ]
            else:
                inner += [
                    (module.computations[name], times, depth, place, fused or one.opcode == "fusion")
                    for _, name in one.called()
                ]
        waiting += reversed(inner)
    return found
