"""Integers of a program as affine functions of a loop's carry; values are followed through calls."""

import dataclasses
import re

from parity.ir.hlo.model import Affine, constant, fold
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.program import Function, Op, Region

_INT = re.compile(r"dense<(-?\d+)> : tensor<(?:i|ui|si)\d+>$")
_INTEGER = re.compile(r"(?:i|ui|si)\d+")
_SCALAR_MOVES = frozenset({"stablehlo.convert", "stablehlo.reshape", "stablehlo.broadcast_in_dim"})
_FOLDED = {f"stablehlo.{name}": name for name in ("add", "subtract", "multiply")}

Makers = dict[int, tuple[Op | Region, int]]
"""The operation or region that defines each value of a function, with the position there."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """A function as entered through a call.

    Args:
        call: the op that calls it; None for ``@main``.
    """

    function: Function
    call: Op | None = None
    parent: "Scope | None" = None


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A value: a result of an op or a parameter of a region, by position, and its scope."""

    maker: Op | Region
    place: int
    scope: Scope

    @property
    def op(self) -> Op | None:
        """The op that defines it; None for a parameter."""
        return self.maker if isinstance(self.maker, Op) else None


class Values:
    """Traces values of a program to their definitions."""

    def __init__(self, functions: Functions):
        self.functions = functions
        self._makers: dict[Function, Makers] = {}

    def makers(self, function: Function) -> Makers:
        """Returns the operation or region that defines each value of a function, with the position there."""
        if function not in self._makers:
            found: Makers = {}
            self._makers[function] = found
            regions = [function.body]
            for region in regions:  # grows
                found.update({value: (region, place) for place, value in enumerate(region.parameters)})
                for op in region.ops:
                    for place, value in enumerate(op.results):
                        found[value] = op, place
                    regions += op.regions
        return self._makers[function]

    def enter(self, call: Op, scope: Scope) -> Scope:
        """Returns the scope of the function that an op calls."""
        return Scope(self.functions[call.callee], call, scope)

    def resolve(self, value: int, scope: Scope) -> Made:
        """Returns the value behind calls, function arguments and barriers."""
        while True:
            maker, place = self.makers(scope.function)[value]
            if isinstance(maker, Region):
                if scope.call is None or scope.parent is None or maker is not scope.function.body:
                    return Made(maker, place, scope)
                value, scope = scope.call.operands[place], scope.parent
            elif maker.callee:
                scope = self.enter(maker, scope)
                value = scope.function.body.outputs[place]
            elif maker.name == "stablehlo.optimization_barrier":
                value = maker.operands[place]
            else:
                return Made(maker, place, scope)

    def affine(self, value: int, scope: Scope, region: Region | None) -> Affine | None:
        """Returns a value as an affine function of one parameter of ``region``; None if it is not affine."""
        made = self.resolve(value, scope)
        op, scope = made.op, made.scope
        if op is None:
            return Affine(made.place, 1, 0) if made.maker is region else self._outer(made, region)
        if op.name == "stablehlo.constant":
            return _constant(op)
        if op.name in _SCALAR_MOVES:
            return self.affine(op.operands[0], scope, region)
        if op.name == "stablehlo.select":
            return self._wrapped_index(op, scope, region)
        if op.name not in _FOLDED:
            return None
        return fold(_FOLDED[op.name], *(self.affine(operand, scope, region) for operand in op.operands))

    def constant(self, value: int, scope: Scope) -> int | None:
        """Returns the integer that a value always has; None if it is not constant."""
        found = self.affine(value, scope, None)
        return found.offset if found is not None and found.factor == 0 else None

    def invariant(self, loop: Op, slot: int, scope: Scope) -> bool:
        """True if a while loop never changes the carry at ``slot``."""
        body = loop.regions[1]
        made = self.resolve(body.outputs[slot], scope)
        return made.maker is body and made.place == slot

    def _outer(self, made: Made, region: Region | None) -> Affine | None:
        """Returns a parameter of another region if it is the unchanged carry of a loop."""
        owner = made.maker.owner if isinstance(made.maker, Region) else None
        if owner is None or owner.name != "stablehlo.while":
            return None
        if not self.invariant(owner, made.place, made.scope):
            return None
        return self.affine(owner.operands[made.place], made.scope, region)

    def _wrapped_index(self, op: Op, scope: Scope, region: Region | None) -> Affine | None:
        """Returns ``select(i < 0, i + n, i)``, the form in which indexing wraps a negative index, as ``i``."""
        made = self.resolve(op.operands[0], scope)
        test = made.op
        if test is None or test.name != "stablehlo.compare":
            return None
        if " LT" not in str(test.form.attributes["comparison_direction"]):
            return None
        zero = self.constant(test.operands[1], made.scope)
        return self.affine(op.operands[2], scope, region) if zero == 0 else None


def _constant(op: Op) -> Affine | None:
    """Returns the integer of a scalar constant; the bindings cannot read constants of all types."""
    if op.form.shapes != ((),) or not _INTEGER.fullmatch(op.form.elements[0]):
        return None
    match = _INT.match(str(op.form.attributes["value"]))
    return constant(int(match.group(1))) if match else None
