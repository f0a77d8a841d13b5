"""Walks over optimised HLO: every instruction with the loops around it, and the loop tree."""

import dataclasses
from typing import Any

from parity.ir.hlo.hlo import Computation, HloModule, Instruction
from parity.ir.hlo.hlo_parse import parse_hlo
from parity.ir.hlo.hlo_trips import hlo_trips
from parity.ir.hlo.model import Loop, LoopTree
from parity.ir.location import SourceLocation

__all__ = ["Visit", "optimised_loops", "optimised_module", "visits"]

_IDLE = frozenset({"bitcast", "constant", "copy", "get-tuple-element", "parameter", "tuple"})
_LOOP_PARTS = ("condition", "body")
_SCALAR_CALLERS = frozenset(
    [
        "all-reduce",
        "map",
        "reduce",
        "reduce-scatter",
        "reduce-window",
        "scatter",
        "select-and-scatter",
        "sort",
        "topk",
    ]
)


def optimised_module(compiled: Any) -> HloModule:
    """Returns the parsed HLO of a ``jax.stages.Compiled`` or of HLO text; a parsed module is returned unchanged.

    Raises:
        ValueError: the text is malformed or uses an unknown construct, or the backend gives no text.
    """
    if isinstance(compiled, HloModule):
        return compiled
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    if not text:
        raise ValueError("compiled program: got no HLO text from this backend, expected an HLO module")
    return parse_hlo(text)


def optimised_loops(compiled: Any) -> LoopTree:
    """Returns the loop tree of a compiled program.

    Loops in computations called at several places count at each of them. Fusions are counted separately.

    Args:
        compiled: a ``jax.stages.Compiled``, HLO text or a parsed module.

    Returns:
        The tree, with trip counts stated by the backend or derived.

    Raises:
        ValueError: the text is malformed or uses an unknown construct.
    """
    module = optimised_module(compiled)
    reader = _Reader(module)
    called = [one for _, one in module.instructions()]
    return LoopTree(
        stage="optimised",
        loops=reader.loops(module.computations[module.entry], SourceLocation()),
        operations=sum(one.opcode not in _IDLE for one in called),
        fusions=sum(one.opcode == "fusion" for one in called),
    )


class _Reader:
    def __init__(self, module: HloModule):
        self.module = module
        self.with_loops: set[str] = set()
        for computation, one in module.instructions():
            if one.opcode == "while" or any(name in self.with_loops for _, name in one.called()):
                self.with_loops.add(computation.name)

    def loops(self, computation: Computation, caller: SourceLocation) -> tuple[Loop, ...]:
        found: list[Loop] = []
        if computation.name not in self.with_loops:
            return ()
        for one in computation.instructions:
            if one.opcode == "while":
                found.append(self._loop(computation, one, caller))
                continue
            if one.phase in ("update", "done"):
                continue
            for _, name in one.called():
                if name in self.with_loops:
                    place = self.module.provenance(one, caller)
                    found += self.loops(self.module.computations[name], place)
        return tuple(found)

    def _loop(self, computation: Computation, one: Instruction, caller: SourceLocation) -> Loop:
        provenance = self.module.provenance(one, caller)
        inner = [
            loop
            for part, name in one.called()
            if part in _LOOP_PARTS
            for loop in self.loops(self.module.computations[name], provenance)
        ]
        return Loop(
            trips=hlo_trips(self.module, computation, one),
            carries=len(one.shape.leaves),
            carry_bytes=one.shape.bytes,
            provenance=provenance,
            inner=tuple(inner),
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
