"""Integers of a program as affine functions of a loop's carry."""

import re
from typing import NamedTuple

from parity.ir.hlo.model import Affine, constant, fold
from parity.ir.stablehlo.program import Op, Region

_INT = re.compile(r"dense<(-?\d+)> : tensor<(?:i|ui|si)\d+>$")
_INTEGER = re.compile(r"(?:i|ui|si)\d+")
_SCALAR_MOVES = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.broadcast_in_dim"})
_FOLDED = {f"stablehlo.{name}": name for name in ("add", "subtract", "multiply")}


class Made(NamedTuple):
    """A value: a result of an op, or a parameter of one of its regions, by position; ``op`` is None for arguments."""

    op: Op | None
    region: Region | None
    place: int


class Values:
    """Traces values of an inlined program to their definitions."""

    def __init__(self, body: Region):
        self._makers: dict[int, Op] = {}
        self._parameters: dict[int, Made] = {}
        regions: list[tuple[Op | None, Region]] = [(None, body)]
        for owner, region in regions:  # grows
            for place, value in enumerate(region.parameters):
                self._parameters[value] = Made(owner, region, place)
            for op in region.ops:
                for value in op.results:
                    self._makers[value] = op
                for inner in op.regions:
                    regions.append((op, inner))

    def resolve(self, value: int) -> Made:
        """Returns the value behind barriers, and behind calls that are not inlined."""
        while True:
            made = self._parameters.get(value)
            if made is None:
                op = self._makers[value]
                made = Made(op, None, value - op.results.start)
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
            return _constant(op)
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

    def _outer(self, made: Made, region: Region | None) -> Affine | None:
        """Returns a parameter of another region if it is the unchanged carry of a loop."""
        loop = made.op
        if loop is None or loop.name != "stablehlo.while" or not self.invariant(loop, made.place):
            return None
        return self.affine(loop.operands[made.place], region)

    def _wrapped_index(self, op: Op, region: Region | None) -> Affine | None:
        """Returns ``select(i < 0, i + n, i)``, the form in which indexing wraps a negative index, as ``i``."""
        test = made_by(self.resolve(op.operands[0]), "stablehlo.compare")
        if test is None or " LT" not in str(test.form.attributes["comparison_direction"]):
            return None
        return self.affine(op.operands[2], region) if self.constant(test.operands[1]) == 0 else None


def made_by(made: Made, name: str) -> Op | None:
    """Returns the op of a name that has a value as a result; None if it is no such result."""
    return made.op if made.op is not None and made.region is None and made.op.name == name else None


def _constant(op: Op) -> Affine | None:
    """Returns the integer of a scalar constant; the bindings cannot read constants of all types."""
    if op.form.shapes != ((),) or not _INTEGER.fullmatch(op.form.elements[0]):
        return None
    match = _INT.match(str(op.form.attributes["value"]))
    return constant(int(match.group(1))) if match else None
