"""Walks over optimised HLO: every instruction with the loops around it, the loop tree, and trip counts."""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

from parity.ir.hlo.hlo import Computation, HloModule, Instruction
from parity.ir.hlo.hlo_parse import parse_hlo
from parity.ir.hlo.model import Affine, Loop, LoopTree, constant, count_trips, fold
from parity.ir.location import SourceLocation

_IDLE = frozenset({"bitcast", "constant", "copy", "get-tuple-element", "parameter", "tuple"})
_SCALAR = frozenset({"to_apply", "select", "scatter"})
"""Attributes that name a function of single elements, such as that of a reduction; a ``call`` names any function."""


def optimised_module(compiled: Any) -> HloModule:
    """Returns the parsed HLO of a ``jax.stages.Compiled`` or of HLO text; a parsed module is returned unchanged."""
    if isinstance(compiled, HloModule):
        return compiled
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    if not text:
        raise ValueError("compiled program: got no HLO text from this backend, expected an HLO module")
    return parse_hlo(text)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """An instruction as reached from the entry.

    Args:
        loop: the innermost loop around it; None outside loops.
        caller: source of the call that leads there, for instructions without metadata.
        fused: True if it is part of a fusion.
        trips: iterations of a loop; None if they are unknown, and for other instructions.
    """

    computation: Computation
    instruction: Instruction
    loop: "Visit | None"
    caller: SourceLocation
    fused: bool
    trips: int | None

    @property
    def depth(self) -> int:
        """Number of loops around it."""
        return self.loop.depth + 1 if self.loop else 0

    @property
    def times(self) -> int | None:
        """Product of the trips of the loops around it; None if some are unknown."""
        if self.loop is None:
            return 1
        return (
            None if self.loop.times is None or self.loop.trips is None else self.loop.times * self.loop.trips
        )


def visits(module: HloModule) -> Iterator[Visit]:
    """Yields every instruction reached from the entry, once per call site, each before those that it calls.

    The scalar functions of reductions, sorts and scatters are not entered. All branches of a conditional are included.
    """
    return _visits(module, module.entry, None, SourceLocation(), False)


def _visits(
    module: HloModule, name: str, loop: Visit | None, caller: SourceLocation, fused: bool
) -> Iterator[Visit]:
    computation = module.computations[name]
    for one in computation.instructions:
        is_loop = one.opcode == "while"
        trips = While(module, computation, one).trips() if is_loop else None
        visit = Visit(computation, one, loop, caller, fused, trips)
        yield visit
        called = () if one.phase in ("update", "done") else one.called()
        entered = [name for key, name in called if key not in _SCALAR or one.opcode == "call"]
        place = module.provenance(one, caller) if entered else caller
        for inner in entered:
            yield from _visits(
                module, inner, visit if is_loop else loop, place, fused or one.opcode == "fusion"
            )


def optimised_loops(compiled: Any) -> LoopTree:
    """Returns the loop tree of a compiled program, with trip counts stated by the backend or derived.

    Loops in computations called at several places count at each of them.
    """
    module = optimised_module(compiled)
    inside: dict[Visit | None, list[Visit]] = collections.defaultdict(list)
    for visit in visits(module):
        if visit.instruction.opcode == "while":
            inside[visit.loop].append(visit)

    def loops(outer: Visit | None) -> tuple[Loop, ...]:
        return tuple(_loop(module, visit, loops(visit)) for visit in inside[outer])

    called = [one for _, one in module.instructions()]
    return LoopTree(
        stage="optimised",
        loops=loops(None),
        computes=any(one.opcode not in _IDLE for one in called),
        fusions=sum(one.opcode == "fusion" for one in called),
    )


def _loop(module: HloModule, visit: Visit, inner: tuple[Loop, ...]) -> Loop:
    one = visit.instruction
    loop = While(module, visit.computation, one)
    return Loop(
        trips=visit.trips,
        carries=len(one.shape.leaves),
        carry_bytes=one.shape.bytes,
        kept_bytes=sum(kind.bytes for slot, kind in enumerate(one.shape.parts) if loop.is_kept(slot)),
        provenance=module.provenance(one, visit.caller),
        inner=inner,
    )


_MOVES = frozenset(
    {"bitcast", "bitcast-convert", "convert", "copy", "opt-barrier", "optimization-barrier", "reshape"}
)
_DEEPEST = 100


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """A computation with the operands for its parameters; no operands at the level of the loop itself."""

    computation: Computation
    operands: tuple[str, ...] = ()
    parent: "_Scope | None" = None


class While:
    """A while loop of optimised HLO, in the computation that holds it: its trips, and the carries that it keeps."""

    def __init__(self, module: HloModule, computation: Computation, loop: Instruction):
        called = dict(loop.called())
        if "condition" not in called or "body" not in called or len(loop.operands) != 1:
            raise ValueError(
                f"HLO line {loop.line}: loop {loop.name} lacks a condition, a body or its one operand"
            )
        self.module, self.loop = module, loop
        self.outside = _Scope(computation)
        self.condition = _Scope(module.computations[called["condition"]])
        self.body = _Scope(module.computations[called["body"]])

    def trips(self) -> int | None:
        """Returns the number of iterations, or None if it depends on data or the pattern is unknown.

        CPU and GPU state the count. The TPU compiler does not; there it is derived from the counter's start, its step
        in the body and the limit in the condition.
        """
        stated = self.loop.backend_config().get("known_trip_count")
        if isinstance(stated, dict) and "n" in stated:
            return self.loop.number("known_trip_count", str(stated["n"]))
        test, scope = self._resolve(self.condition.computation.root, self.condition)
        if test.opcode != "compare" or len(test.operands) != 2:
            return None
        sides = [self._affine(name, scope) for name in test.operands]
        return count_trips(sides, test.attributes.get("direction", ""), self._step, self._start)

    def is_kept(self, slot: int) -> bool:
        """True if no iteration changes a carry."""
        return self._step(slot) == 0

    def _step(self, slot: int) -> int | None:
        """Returns the increment of a carry in the body: 0 if unchanged, None if it is not a constant."""
        after = self._part(self.body.computation.root, self.body, slot)
        return after.offset if after and (after.slot, after.factor) == (slot, 1) else None

    def _start(self, slot: int) -> int | None:
        found = self._part(self.loop.operands[0], self.outside, slot)
        return found.offset if found and not found.factor else None

    def _part(self, name: str, scope: _Scope, slot: int) -> Affine | None:
        """Returns a part of a tuple as an affine function of a carry; None if it is not affine."""
        made, scope = self._resolve(name, scope)
        is_part = made.opcode == "tuple" and slot < len(made.operands)
        return self._affine(made.operands[slot], scope) if is_part else None

    def _resolve(self, name: str, scope: _Scope) -> tuple[Instruction, _Scope]:
        """Returns the instruction behind copies, fusions, calls and tuples, with its scope."""
        for _ in range(_DEEPEST):
            instruction = scope.computation.by_name[name]
            following = self._behind(instruction, scope)
            if following is None:
                break
            name, scope = following
        return scope.computation.by_name[name], scope

    def _behind(self, one: Instruction, scope: _Scope) -> tuple[str, _Scope] | None:
        """Returns the value that an instruction forwards; None if it computes a new one."""
        if one.opcode == "parameter" and scope.parent is not None and int(one.literal) < len(scope.operands):
            return scope.operands[int(one.literal)], scope.parent
        if (one.opcode in _MOVES or one.base == "copy") and len(one.operands) == 1:
            return one.operands[0], scope
        if one.opcode in ("fusion", "call") and one.called():
            inner = self.module.computations[one.called()[0][1]]
            return inner.root, _Scope(inner, one.operands, scope)
        if one.opcode == "get-tuple-element" and len(one.operands) == 1:
            source, around = self._resolve(one.operands[0], scope)
            index = _index(one)
            if source.opcode == "tuple" and index < len(source.operands):
                return source.operands[index], around
        return None

    def _affine(self, name: str, scope: _Scope, depth: int = 0) -> Affine | None:
        """Returns a value as an affine function of a carry; None if it is not affine."""
        one, scope = self._resolve(name, scope)
        if one.opcode == "constant":
            text = one.literal.removeprefix("-")
            is_number = text.isdecimal() and text.isascii() and len(text) < 19
            return constant(int(one.literal)) if is_number else None
        if one.opcode == "get-tuple-element":
            source, around = self._resolve(one.operands[0], scope)
            is_carry = source.opcode == "parameter" and around.parent is None
            return Affine(_index(one), 1, 0) if is_carry else None
        if one.opcode not in ("add", "subtract") or len(one.operands) != 2 or depth > _DEEPEST:
            return None
        return fold(one.opcode, *(self._affine(operand, scope, depth + 1) for operand in one.operands))


def _index(one: Instruction) -> int:
    return one.number("index", one.attributes.get("index", ""))
