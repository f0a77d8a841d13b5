"""The loop tree of a lowered StableHLO program."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from parity.ir.hlo.hlo import Shape
from parity.ir.hlo.model import Affine, Loop, LoopTree, constant, count_trips, fold
from parity.ir.location import inlined_source
from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram
from parity.ir.stablehlo.reader import read_program

_DIRECTION = re.compile(r"comparison_direction\s+(\w+)")
_INTEGER = re.compile(r"(?:i|ui|si)\d+")
_SCALAR_MOVES = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.broadcast_in_dim"})
_FOLDED = {f"stablehlo.{name}": name for name in ("add", "subtract", "multiply")}
_ELEMENTS = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def lowered_loops(lowered: Any) -> LoopTree:
    """Returns the loop tree of a lowered program, before any optimisation.

    A function called at several places counts at each of them, unless its operands are the same.
    """
    program = read_program(lowered)
    with program.module_op.context:
        computes = any(op.name != "stablehlo.constant" for op in program.body.walk())
        loops = tuple(_loops(program.body, _Values(program.body)))
        return LoopTree(stage="lowered", loops=loops, computes=computes)


def trip_counts(program: StableProgram) -> Callable[[Op], int | None]:
    """Returns a function of a loop of a program: the number of its iterations, or None if the text leaves it open."""
    values = _Values(program.body)
    return lambda loop: _While(values, loop).trips()


def _loops(region: Region, values: "_Values") -> Iterator[Loop]:
    """Yields the loops directly inside a region."""
    for op in region.ops:
        if op.form.kind == Kind.WHILE:
            yield _loop(op, values)
        else:
            for inner in op.regions:
                yield from _loops(inner, values)


def _loop(op: Op, values: "_Values") -> Loop:
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

    def __init__(self, values: "_Values", op: Op):
        self.values, self.op = values, op
        self.condition, self.body = op.regions

    def trips(self) -> int | None:
        test = _made_by(self.values.resolve(self.condition.outputs[0]), "stablehlo.compare")
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
        """Returns the increment of a carry in the body: 0 if unchanged, None if it is not a constant."""
        if self.is_kept(slot):
            return 0
        change = self.values.affine(self.body.outputs[slot], self.body)
        return (change.offset or None) if change and (change.slot, change.factor) == (slot, 1) else None

    def _start(self, slot: int) -> int | None:
        return self.values.constant(self.op.operands[slot])

    def stacked(self) -> Iterator[Shape]:
        """Yields the carries that each iteration writes at a counter, along one dimension."""
        for slot, value in enumerate(self.body.outputs):
            update = _made_by(self.values.resolve(value), "stablehlo.dynamic_update_slice")
            if update is None:
                continue
            target, _, *starts = update.operands
            own = self.values.resolve(target)
            places = [self.values.affine(start, self.body) for start in starts]
            moving = [place for place in places if place is None or place.factor]
            counted = len(moving) == 1 and moving[0] is not None and self._step(moving[0].slot)
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


class _Made(NamedTuple):
    """A value: a result of an op, or a parameter of one of its regions, by position; ``op`` is None for arguments."""

    op: Op | None
    region: Region | None
    place: int


class _Values:
    """The values of an inlined program, traced to their definitions; integers as affine functions of a loop's carry."""

    def __init__(self, body: Region):
        ops = list(body.walk())
        self._makers = {value: op for op in ops for value in op.results}
        regions = [(None, body), *((op, region) for op in ops for region in op.regions)]
        self._parameters = {
            value: _Made(owner, region, place)
            for owner, region in regions
            for place, value in enumerate(region.parameters)
        }

    def resolve(self, value: int) -> _Made:
        """Returns the value behind barriers, and behind calls that are not inlined."""
        while True:
            made = self._parameters.get(value)
            if made is None:
                op = self._makers[value]
                made = _Made(op, None, value - op.results.start)
            op, region, place = made
            if op is None:
                return made
            if op.callee and region is None:
                value = op.regions[-1].outputs[place]
            elif op.callee or op.name == "stablehlo.optimization_barrier":
                value = op.operands[place]
            else:
                return made

    def affine(self, value: int, region: Region | None) -> Affine | None:
        """Returns a value as an affine function of one parameter of ``region``; None if it is not affine."""
        made = self.resolve(value)
        op = made.op
        if made.region is not None:
            return Affine(made.place, 1, 0) if made.region is region else self._outer(made, region)
        assert op is not None
        if op.name == "stablehlo.constant":
            is_integer = op.form.shapes == ((),) and _INTEGER.fullmatch(op.form.elements[0])
            numbers = dense_numbers(op.source.operation) if is_integer else ()
            return constant(int(numbers[0])) if numbers else None
        if op.name in _SCALAR_MOVES:
            return self.affine(op.operands[0], region)
        if op.name == "stablehlo.select":
            return self._wrapped_index(op, region)
        if op.name not in _FOLDED:
            return None
        return fold(_FOLDED[op.name], *(self.affine(operand, region) for operand in op.operands))

    def constant(self, value: int) -> int | None:
        """Returns the integer that a value always has; None if it is not constant."""
        found = self.affine(value, None)
        return found.offset if found is not None and found.factor == 0 else None

    def invariant(self, loop: Op, slot: int) -> bool:
        """True if a while loop never changes the carry at ``slot``."""
        body = loop.regions[1]
        made = self.resolve(body.outputs[slot])
        return made.region is body and made.place == slot

    def _outer(self, made: _Made, region: Region | None) -> Affine | None:
        """Returns a parameter of another region if it is the unchanged carry of a loop."""
        loop = made.op
        if loop is None or loop.name != "stablehlo.while" or not self.invariant(loop, made.place):
            return None
        return self.affine(loop.operands[made.place], region)

    def _wrapped_index(self, op: Op, region: Region | None) -> Affine | None:
        """Returns ``select(i < 0, i + n, i)``, the form in which indexing wraps a negative index, as ``i``."""
        test = _made_by(self.resolve(op.operands[0]), "stablehlo.compare")
        if test is None or " LT" not in str(test.form.attributes["comparison_direction"]):
            return None
        return self.affine(op.operands[2], region) if self.constant(test.operands[1]) == 0 else None


def _made_by(made: _Made, name: str) -> Op | None:
    """Returns the op of a name that has a value as a result; None if it is no such result."""
    return made.op if made.op is not None and made.region is None and made.op.name == name else None
