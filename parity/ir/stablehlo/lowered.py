"""The loop tree of a lowered StableHLO module."""

import functools
import re
from collections.abc import Iterator
from typing import Any

from parity.ir.hlo.hlo import Shape
from parity.ir.hlo.model import Loop, LoopTree, count_trips
from parity.ir.location import SourceLocation, operation_source
from parity.ir.stablehlo.affine import Scope, Values
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.program import Function, Kind, Op, Region

_DIRECTION = re.compile(r"comparison_direction\s+(\w+)")
_ELEMENTS = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def lowered_loops(lowered: Any) -> LoopTree:
    """Returns the loop tree of a lowered program, before any optimisation.

    A function called at several places counts at each of them.

    Returns:
        The tree, with trip counts derived from counters, and stacked outputs.

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
        shapes = [*map(_shape, op.form.types)]
        return Loop(
            trips=reader.trips(),
            carries=len(shapes),
            carry_bytes=sum(shape.bytes for shape in shapes),
            kept_bytes=sum(shape.bytes for slot, shape in enumerate(shapes) if reader.is_kept(slot)),
            provenance=reader.provenance,
            stacked=tuple(reader.stacked()),
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
        return count_trips(sides, direction, self._step, self._start)

    def is_kept(self, slot: int) -> bool:
        """True if no iteration changes a carry."""
        return self.values.invariant(self.op, slot, self.scope)

    def _step(self, slot: int) -> int | None:
        return 0 if self.is_kept(slot) else self.counters.get(slot)

    def _start(self, slot: int) -> int | None:
        return self.values.constant(self.op.operands[slot], self.scope)

    def stacked(self) -> Iterator[Shape]:
        """Yields the carries that each iteration writes at a counter, along one dimension."""
        for slot, value in enumerate(self.body.outputs):
            made = self.values.resolve(value, self.scope)
            if made.op is None or made.op.name != "stablehlo.dynamic_update_slice":
                continue
            target, _, *starts = made.op.operands
            own = self.values.resolve(target, made.scope)
            places = [self.values.affine(start, made.scope, self.body) for start in starts]
            moving = [place for place in places if place is None or place.factor]
            counted = len(moving) == 1 and moving[0] is not None and moving[0].slot in self.counters
            if not counted or own.maker is not self.body or own.place != slot:
                continue
            yield _shape(self.op.form.types[slot])


def _shape(kind: Any) -> Shape:
    """Returns a type as HLO writes it; a token for types without a shape.

    Raises:
        ValueError: the tensor has a dynamic dimension.
    """
    if not hasattr(kind, "shape"):
        return Shape("token")
    if any(size < 0 for size in kind.shape):
        raise ValueError(f"structure: got a dynamic dimension in {kind}, expected static shapes")
    element = str(kind.element_type).lower().replace("ui", "u")
    return Shape(_ELEMENTS.get(element) or re.sub(r"^i(?=\d)", "s", element), tuple(kind.shape))
