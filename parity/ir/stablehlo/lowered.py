"""The loop tree of a lowered StableHLO module."""

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

from parity.ir.hlo.model import Leaf, Loop, LoopTree, Side, count_trips
from parity.ir.location import SourceLocation, operation_source
from parity.ir.stablehlo.affine import Affine, Scope, Values
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.operations import Group, names_of
from parity.ir.stablehlo.program import Function, Kind, Op, Region

__all__ = ["lowered_loops", "moves"]

_DIRECTION = re.compile(r"comparison_direction\s+(\w+)")
_WIDTH = re.compile(r"(\d+)")
_MOVES = names_of(Group.REARRANGES, Group.SAME, "bitcast_convert", "convert", "slice")
_MOVING_CALLS = frozenset({"Sharding", "annotate_device_placement"})


def lowered_loops(lowered: Any) -> LoopTree:
    """Returns the loop tree of a lowered program, before any optimisation.

    A function called at several places counts at each of them.

    Args:
        lowered: a ``jax.stages.Lowered``, its StableHLO module, or its functions.

    Returns:
        The tree, with trip counts derived from counters, stacked outputs and passed-through inputs.

    Raises:
        ValueError: the module has no ``main`` function or a loop carries a dynamic shape.
    """
    functions = Functions.of(lowered)
    with functions.module.context:
        main = Scope(functions["main"])
        reader = _Loops(Values(functions))
        reader.has_loops(main.function)
        loops = tuple(reader.loops(main.function.body, main, SourceLocation()))
        return LoopTree(stage="lowered", loops=loops, operations=reader.operations)


class _Loops:
    """The loops of a program.

    Attributes:
        operations: operations of all functions that were read, each function once.
    """

    def __init__(self, values: Values):
        self.values = values
        self.operations = 0
        self._known: dict[Function, bool] = {}

    def has_loops(self, function: Function) -> bool:
        """True if a function or one that it calls has loops; at the first call, counts its operations."""
        if function not in self._known:
            self._known[function] = False
            for op in function.body.walk():
                self.operations += op.form.name != "stablehlo.constant"
                inside = op.callee and self.has_loops(self.values.functions[op.callee])
                self._known[function] |= op.form.kind == Kind.WHILE or bool(inside)
        return self._known[function]

    def loops(self, region: Region, scope: Scope, caller: SourceLocation) -> list[Loop]:
        """Returns the loops of a region in a scope, once per call site."""
        found = []
        for op in region.ops:
            if op.form.kind == Kind.WHILE:
                found.append(self._loop(op, scope, caller))
            elif op.callee:
                if self.has_loops(self.values.functions[op.callee]):
                    callee, place = self.values.enter(op, scope), operation_source(op.source, caller)
                    found += self.loops(callee.function.body, callee, place)
            elif op.regions:
                found += [loop for inner in op.regions for loop in self.loops(inner, scope, caller)]
        return found

    def _loop(self, op: Op, scope: Scope, caller: SourceLocation) -> Loop:
        reader = _While(self.values, op, scope, operation_source(op.source, caller))
        types = op.form.types
        stacked = reader.stacked()
        return Loop(
            trips=reader.trips(),
            carries=len(types),
            carry_bytes=sum(map(_byte_size, types)),
            kept_bytes=sum(_byte_size(kind) for slot, kind in enumerate(types) if reader.is_kept(slot)),
            provenance=reader.provenance,
            stacked=tuple(leaf for leaf, _ in stacked),
            passthrough=tuple(leaf for leaf, passed in stacked if passed),
            inner=tuple(loop for region in op.regions for loop in self.loops(region, scope, caller)),
        )


class _While:
    """One while operation: its counter and its stacked outputs."""

    def __init__(self, values: Values, op: Op, scope: Scope, provenance: SourceLocation):
        self.values, self.op, self.scope, self.provenance = values, op, scope, provenance
        self.condition, self.body = op.regions

    @functools.cached_property
    def counters(self) -> dict[int, int]:
        """Slots that grow by a constant in each iteration, with that constant."""
        found = {}
        for slot, (value, kind) in enumerate(zip(self.body.outputs, self.op.form.types, strict=True)):
            if getattr(kind, "shape", None) != [] or "i" not in str(kind.element_type):
                continue
            change = self.values.affine(value, self.scope, self.body)
            if change is not None and (change.slot, change.factor) == (slot, 1) and change.offset:
                found[slot] = change.offset
        return found

    def trips(self) -> int | None:
        made = self.values.resolve(self.condition.outputs[0], self.scope)
        test = made.op
        if test is None or test.name != "stablehlo.compare":
            return None
        match = _DIRECTION.search(str(test.form.attributes["comparison_direction"]))
        direction = match.group(1) if match else ""
        sides = [self.values.affine(side, made.scope, self.condition) for side in test.operands]
        return count_trips([_side(side) for side in sides], direction, self._step, self._start)

    def is_kept(self, slot: int) -> bool:
        """True if no iteration changes a carry."""
        return self.values.invariant(self.op, slot, self.scope)

    def _step(self, slot: int) -> int | None:
        return 0 if self.is_kept(slot) else self.counters.get(slot)

    def _start(self, slot: int) -> int | None:
        return self.values.constant(self.op.operands[slot], self.scope)

    def stacked(self) -> list[tuple[Leaf, bool]]:
        """Returns the outputs written at a counter, and for each whether it is an unchanged scanned input."""
        found = []
        for slot, value in enumerate(self.body.outputs):
            made = self.values.resolve(value, self.scope)
            if made.op is None or made.op.name != "stablehlo.dynamic_update_slice":
                continue
            target, update, *starts = made.op.operands
            own = self.values.resolve(target, made.scope)
            index = self._index(starts, made.scope)
            if index is None or own.maker is not self.body or own.place != slot:
                continue
            returned, _ = self.values.makers(self.scope.function)[value]
            writer = returned if isinstance(returned, Op) else made.op
            kind = self.op.form.types[slot]
            leaf = Leaf(
                shape=_shape_text(kind),
                bytes=_byte_size(kind),
                provenance=operation_source(writer.source, self.provenance),
            )
            found.append((leaf, self._is_scanned(update, made.scope, index)))
        return found

    def _index(self, starts: Sequence[int], scope: Scope) -> tuple[int, Affine] | None:
        """Returns the only dimension whose start moves with a counter, and the start; None if not exactly one."""
        moving = None
        for axis, start in enumerate(starts):
            place = self.values.affine(start, scope, self.body)
            if place is None or (place.factor and (place.slot not in self.counters or moving)):
                return None
            if place.factor:
                moving = (axis, place)
        return moving

    def _is_scanned(self, value: int, scope: Scope, index: tuple[int, Affine]) -> bool:
        """True if a value is the slice of an unchanged carry at the index of the write."""
        made = self.values.resolve(value, scope)
        op, scope = made.op, made.scope
        if op is None:
            return False
        if op.name == "stablehlo.concatenate":
            return all(self._is_scanned(operand, scope, index) for operand in op.operands)
        if op.name == "stablehlo.dynamic_slice":
            start = self._index(op.operands[1:], scope)
            if start is None:
                return self._is_scanned(op.operands[0], scope, index)
            return start[1] == index[1] and self._unchanged(op.operands[0], scope)
        return moves(op) and _same_count(op) and self._is_scanned(op.operands[0], scope, index)

    def _unchanged(self, value: int, scope: Scope) -> bool:
        made = self.values.resolve(value, scope)
        if made.maker is self.body:
            return self.is_kept(made.place)
        return made.op is None


def _side(side: Affine | None) -> Side | None:
    """Returns a side of a loop's condition; None if it is a multiple of a carry."""
    if side is None or side.factor not in (0, 1):
        return None
    return (side.slot if side.factor else None), side.offset


def moves(op: Op) -> bool:
    """True if an operation only rearranges, repeats, cuts, casts or places its operand."""
    if op.name == "stablehlo.custom_call":
        return op.form.attributes["call_target_name"].value in _MOVING_CALLS
    return op.name in _MOVES


def _same_count(op: Op) -> bool:
    """True if an operation repeats no elements. A slice may drop some: an unrolled body splits its inputs."""
    return math.prod(op.form.shapes[0]) <= math.prod(op.source.operands[0].type.shape)


def _shape_text(kind: Any) -> str:
    """Returns a tensor type as HLO writes it, such as ``f32[2,3]``; other types as MLIR prints them."""
    if not hasattr(kind, "shape"):
        return str(kind)
    element = str(kind.element_type).lower().replace("ui", "u")
    element = {"i1": "pred"}.get(element, re.sub(r"^i(?=\d)", "s", element))
    return f"{element}[{','.join(map(str, kind.shape))}]"


def _byte_size(kind: Any) -> int:
    """Returns the bytes of a tensor type without padding; 0 for tokens and other types without a shape.

    Raises:
        ValueError: the tensor has a dynamic dimension.
    """
    if not hasattr(kind, "shape"):
        return 0
    text = str(kind.element_type).lower()
    width = _WIDTH.search(text)
    bits = 8 if text == "i1" or width is None else int(width.group(1))
    bits = bits * 2 if text.startswith("complex") else bits
    if any(size < 0 for size in kind.shape):
        raise ValueError(f"structure: got a dynamic dimension in {kind}, expected static shapes")
    return -(-math.prod(kind.shape) * bits // 8)
