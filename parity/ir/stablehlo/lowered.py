"""The loop tree of a lowered StableHLO program."""

import functools
import re
from collections.abc import Iterator
from typing import Any

from parity.ir.hlo.hlo import Shape
from parity.ir.hlo.model import Loop, LoopTree, count_trips
from parity.ir.location import inlined_source
from parity.ir.stablehlo.affine import Values, made_by
from parity.ir.stablehlo.program import Kind, Op, Region
from parity.ir.stablehlo.reader import read_program

_DIRECTION = re.compile(r"comparison_direction\s+(\w+)")
_ELEMENTS = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def lowered_loops(lowered: Any) -> LoopTree:
    """Returns the loop tree of a lowered program, before any optimisation.

    A function called at several places counts at each of them, unless its operands are the same.
    """
    program = read_program(lowered)
    with program.module_op.context:
        computes = any(op.name != "stablehlo.constant" for op in program.body.walk())
        loops = tuple(_loops(program.body, Values(program.body)))
        return LoopTree(stage="lowered", loops=loops, computes=computes)


def _loops(region: Region, values: Values) -> Iterator[Loop]:
    """Yields the loops directly inside a region."""
    for op in region.ops:
        if op.form.kind == Kind.WHILE:
            yield _loop(op, values)
        else:
            for inner in op.regions:
                yield from _loops(inner, values)


def _loop(op: Op, values: Values) -> Loop:
    reader = _While(values, op)
    shapes = [*map(_shape, op.form.types)]
    return Loop(
        trips=reader.trips(),
        carries=len(shapes),
        carry_bytes=sum(shape.bytes for shape in shapes),
        kept_bytes=sum(shape.bytes for slot, shape in enumerate(shapes) if reader.is_kept(slot)),
        provenance=inlined_source(op),
        elements=tuple(sorted(shape.element for shape in shapes)),
        stacked=tuple(reader.stacked()),
        inner=tuple(loop for region in op.regions for loop in _loops(region, values)),
    )


class _While:
    """One while operation: its counter and its stacked outputs."""

    def __init__(self, values: Values, op: Op):
        self.values, self.op = values, op
        self.condition, self.body = op.regions

    @functools.cached_property
    def counters(self) -> dict[int, int]:
        """Slots that grow by a constant in each iteration, with that constant."""
        found = {}
        for slot, (value, kind) in enumerate(zip(self.body.outputs, self.op.form.types, strict=True)):
            if getattr(kind, "shape", None) != [] or "i" not in str(kind.element_type):
                continue
            change = self.values.affine(value, self.body)
            if change is not None and (change.slot, change.factor) == (slot, 1) and change.offset:
                found[slot] = change.offset
        return found

    def trips(self) -> int | None:
        test = made_by(self.values.resolve(self.condition.outputs[0]), "stablehlo.compare")
        if test is None:
            return None
        match = _DIRECTION.search(str(test.form.attributes["comparison_direction"]))
        direction = match.group(1) if match else ""
        sides = [self.values.affine(side, self.condition) for side in test.operands]
        return count_trips(sides, direction, self._step, self._start)

    def is_kept(self, slot: int) -> bool:
        """True if no iteration changes a carry."""
        return self.values.invariant(self.op, slot)

    def _step(self, slot: int) -> int | None:
        return 0 if self.is_kept(slot) else self.counters.get(slot)

    def _start(self, slot: int) -> int | None:
        return self.values.constant(self.op.operands[slot])

    def stacked(self) -> Iterator[Shape]:
        """Yields the carries that each iteration writes at a counter, along one dimension."""
        for slot, value in enumerate(self.body.outputs):
            update = made_by(self.values.resolve(value), "stablehlo.dynamic_update_slice")
            if update is None:
                continue
            target, _, *starts = update.operands
            own = self.values.resolve(target)
            places = [self.values.affine(start, self.body) for start in starts]
            moving = [place for place in places if place is None or place.factor]
            counted = len(moving) == 1 and moving[0] is not None and moving[0].slot in self.counters
            if counted and own.region is self.body and own.place == slot:
                yield _shape(self.op.form.types[slot])


def _shape(kind: Any) -> Shape:
    """Returns a type as HLO writes it; a token for types without a shape."""
    if not hasattr(kind, "shape"):
        return Shape("token")
    if any(size < 0 for size in kind.shape):
        raise ValueError(f"structure: got a dynamic dimension in {kind}, expected static shapes")
    element = str(kind.element_type).lower().replace("ui", "u")
    return Shape(_ELEMENTS.get(element) or re.sub(r"^i(?=\d)", "s", element), tuple(kind.shape))
