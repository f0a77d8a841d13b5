"""Walks over optimised HLO: every instruction with the loops around it, the loop tree, and trip counts."""

import dataclasses
from typing import Any

from parity.ir.hlo.hlo import Computation, HloModule, Instruction
from parity.ir.hlo.hlo_parse import parse_hlo
from parity.ir.hlo.model import Loop, LoopTree, Side, count_trips
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
        counter = _Counter(self.module, computation, one)
        return Loop(
            trips=hlo_trips(self.module, computation, one),
            carries=len(one.shape.leaves),
            carry_bytes=one.shape.bytes,
            kept_bytes=sum(kind.bytes for slot, kind in enumerate(one.shape.parts) if counter.is_kept(slot)),
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


_MOVES = frozenset(
    {"bitcast", "bitcast-convert", "convert", "copy", "opt-barrier", "optimization-barrier", "reshape"}
)
_DEEPEST = 100


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """A computation with the operands for its parameters; no operands at the level of the loop itself."""

    computation: Computation
    operands: tuple[str, ...]
    parent: "_Scope | None"


def hlo_trips(module: HloModule, computation: Computation, loop: Instruction) -> int | None:
    """Returns the number of iterations of a while loop of optimised HLO.

    CPU and GPU state the count. The TPU compiler does not; there it is derived from the counter's start, its step in
    the body and the limit in the condition.

    Args:
        module: the module.
        computation: the computation that holds the loop.
        loop: the ``while`` instruction.

    Returns:
        The count, or None if it depends on data or the pattern is unknown.

    Raises:
        ValueError: the module is inconsistent (a loop without condition or body, a count that is not a number).
    """
    stated = loop.backend_config().get("known_trip_count")
    if isinstance(stated, dict) and "n" in stated:
        text = str(stated["n"])
        if not text.isdecimal() or len(text) > 18:
            raise ValueError(
                f"HLO line {loop.line}: known_trip_count of {loop.name} is {text[:40]!r}, not a number"
            )
        return int(text)
    return _Counter(module, computation, loop).trips()


class _Counter:
    def __init__(self, module: HloModule, computation: Computation, loop: Instruction):
        called = dict(loop.called())
        if "condition" not in called or "body" not in called or len(loop.operands) != 1:
            raise ValueError(
                f"HLO line {loop.line}: loop {loop.name} lacks a condition, a body or its one operand"
            )
        self.module = module
        self.outside = _Scope(computation, (), None)
        self.start = loop.operands[0]
        self.condition = _Scope(module.computations[called["condition"]], (), None)
        self.body = _Scope(module.computations[called["body"]], (), None)

    def trips(self) -> int | None:
        test, frame = self._resolve(self.condition.computation.root, self.condition)
        direction = test.attributes.get("direction", "")
        if test.opcode != "compare" or len(test.operands) != 2:
            return None
        sides = [self._affine(name, frame) for name in test.operands]
        return count_trips(sides, direction, self._step, self._start)

    def is_kept(self, slot: int) -> bool:
        """True if no iteration changes a carry."""
        return self._step(slot) == 0

    def _step(self, slot: int) -> int | None:
        """Returns the increment of a carry in the body: 0 if unchanged, None if it is not a constant."""
        result, frame = self._resolve(self.body.computation.root, self.body)
        if result.opcode != "tuple" or slot >= len(result.operands):
            return None
        after = self._affine(result.operands[slot], frame)
        return after[1] if after is not None and after[0] == slot else None

    def _start(self, slot: int) -> int | None:
        tuple_, frame = self._resolve(self.start, self.outside)
        if tuple_.opcode != "tuple" or slot >= len(tuple_.operands):
            return None
        found = self._affine(tuple_.operands[slot], frame)
        return found[1] if found is not None and found[0] is None else None

    def _resolve(self, name: str, frame: _Scope) -> tuple[Instruction, _Scope]:
        """Returns the instruction behind copies, fusions, calls and tuples, with its frame."""
        for _ in range(_DEEPEST):
            instruction = frame.computation.by_name[name]
            following = self._behind(instruction, frame)
            if following is None:
                break
            name, frame = following
        return frame.computation.by_name[name], frame

    def _behind(self, one: Instruction, frame: _Scope) -> tuple[str, _Scope] | None:
        """Returns the value that an instruction forwards; None if it computes a new one."""
        if one.opcode == "parameter" and frame.parent is not None and int(one.literal) < len(frame.operands):
            return frame.operands[int(one.literal)], frame.parent
        if (one.opcode in _MOVES or one.base == "copy") and len(one.operands) == 1:
            return one.operands[0], frame
        if one.opcode in ("fusion", "call") and one.called():
            inner = self.module.computations[one.called()[0][1]]
            return inner.root, _Scope(inner, one.operands, frame)
        if one.opcode == "get-tuple-element" and len(one.operands) == 1:
            source, source_frame = self._resolve(one.operands[0], frame)
            index = _index(one)
            if source.opcode == "tuple" and index < len(source.operands):
                return source.operands[index], source_frame
        return None

    def _affine(self, name: str, frame: _Scope, depth: int = 0) -> Side | None:
        """Returns (slot, offset) for a carry plus a constant, (None, value) for a constant, else None."""
        one, frame = self._resolve(name, frame)
        if depth > _DEEPEST:
            return None
        if one.opcode == "constant":
            text = one.literal.removeprefix("-")
            return (
                (None, int(one.literal)) if text.isdecimal() and text.isascii() and len(text) < 19 else None
            )
        if one.opcode == "get-tuple-element":
            source, source_frame = self._resolve(one.operands[0], frame)
            is_carry = source.opcode == "parameter" and source_frame.parent is None
            return (_index(one), 0) if is_carry else None
        if one.opcode not in ("add", "subtract") or len(one.operands) != 2:
            return None
        left, right = (self._affine(operand, frame, depth + 1) for operand in one.operands)
        if left is None or right is None or (left[0] is not None and right[0] is not None):
            return None
        if one.opcode == "subtract":
            return (left[0], left[1] - right[1]) if right[0] is None else None
        return (right[0] if left[0] is None else left[0], left[1] + right[1])


def _index(one: Instruction) -> int:
    text = one.attributes.get("index", "")
    if not (text.isdecimal() and text.isascii() and len(text) < 9):
        raise ValueError(f"HLO line {one.line}: {one.name} has index {text!r}, not a number")
    return int(text)
