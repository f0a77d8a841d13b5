"""Reductions and products of matrices by the roles of their axes, regardless of their shapes."""

import itertools
from collections.abc import Sequence

from parity.ir.mlir import numbers
from parity.ir.stablehlo.program import Region
from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import Application, Terms, Value
from parity.prove.rules.views import View, whole

__all__ = ["reduction_pattern", "sum_of_one"]

_NEUTRAL = {"stablehlo.add": 0, "stablehlo.and": True}
_Roles = list[tuple[str, int]]


@RewriteRule(
    name="reduce-merged",
    rewrites="neighbouring axes of a reduction that are both reduced, or both kept -> one axis; of size one -> none",
    condition="neighbours",
    argument="The same elements meet in the same order; but the compiler makes one sum of a sum of sums in one "
    "spelling and not in the other.",
    attacked_by="largest of heads",
    loose=True,
)
def reduction_pattern(
    table: Terms, shape: Sequence[int], axes: Sequence[int]
) -> list[tuple[bool, int]] | None:
    """Returns (reduced, size) of the axes of a reduction in normal form; None if no rule is allowed."""
    if not table.allows("reduce-merged"):
        return None
    table.use("reduce-merged")
    done: list[tuple[bool, int]] = []
    for reduced, size in [(axis in axes, size) for axis, size in enumerate(shape) if size > 1]:
        if done and done[-1][0] == reduced:
            done[-1] = (reduced, done[-1][1] * size)
        else:
            done.append((reduced, size))
    return done


@RewriteRule(
    name="sum-of-one",
    rewrites="a sum over axes of size one, from zero -> its operand; a conjunction, from true, likewise",
    condition="not of constants; the reducer is one addition of its two parameters, the initial value 0.0 or -0.0",
    argument="The specification leaves open whether the initial value takes part; XLA leaves it out, so that -0 "
    "stays -0.",
    attacked_by="sum over an axis and a unit axis",
)
def sum_of_one(table: Terms, operand: Value, start: Value, axes: Sequence[int], body: Region) -> View | None:
    """Returns the operand of a sum or conjunction over axes of size one, from its neutral element; else None."""
    if not table.allows("sum-of-one") or any(operand.type.shape[axis] > 1 for axis in axes):
        return None
    if len(body.ops) != 1 or start.type.element != operand.type.element:
        return None
    (combine,) = body.ops
    if sorted(combine.operands) != sorted(body.parameters) or list(body.outputs) != [combine.results.start]:
        return None
    known, neutral = table.known(start.view), _NEUTRAL.get(combine.form.name)
    if known is None or known != neutral or (neutral is True and operand.type.element != "i1"):
        return None
    table.use("sum-of-one")
    return operand.view


@normal_form("stablehlo.dot_general")
@RewriteRule(
    name="dot-axes",
    rewrites="free and batch axes of dot_general of size one -> none; neighbouring free axes, or axes that are "
    "neighbours in the batch of both operands -> one axis",
    condition="neighbours in the same order in the operand, so that no element moves",
    argument="The same products are added in the same order; XLA makes one free axis of several before it "
    "chooses how to compute.",
    attacked_by="heads in the weights",
)
def _dot(table: Terms, op: Application) -> View | None:
    """Returns a product of matrices by the roles of its axes; None if no rule is allowed."""
    if not table.allows("dot-axes"):
        return None
    text, roles = str(op.attributes["dot_dimension_numbers"]), []
    for side, operand in zip(("lhs", "rhs"), op.operands, strict=True):
        axes = [numbers(text, f"{side}_{role}_dimensions") for role in ("batching", "contracting")]
        roles.append([(role, size) for role, size in _roles(operand, *axes) if size > 1 or role[0] == "c"])
    table.use("dot-axes")
    notes = sorted(
        (key, str(value)) for key, value in op.attributes.items() if key != "dot_dimension_numbers"
    )
    table.built = True
    views = [table.flat(operand.view) for operand in op.operands]
    number = table.number(f"~dot {_merged(roles)} {notes} {op.out.element}", *views)
    return whole(number, op.out.count)


def _roles(operand: Value, batch: Sequence[int], contracted: Sequence[int]) -> _Roles:
    """Returns the role of each axis: ``b`` and ``c`` with their position in their kind, ``f`` with the axis."""
    found = []
    for axis, size in enumerate(operand.type.shape):
        if axis in batch:
            role = f"b{batch.index(axis):03}"
        elif axis in contracted:
            role = f"c{contracted.index(axis):03}"
        else:
            role = f"f{axis:03}"
        found.append((role, size))
    return found


def _merged(roles: list[_Roles]) -> list[list[tuple[str, int]]]:
    """Returns the axes of both operands, with neighbouring axes merged if they are free or batch axes."""
    shared = sorted(role for role, _ in roles[0] if role[0] == "b")
    for first, second in itertools.pairwise(shared):
        if all(_follow(side, _last(side, first), second) for side in roles):
            roles = [_joined(side, _last(side, first), second) for side in roles]
    done = []
    for side in roles:
        free: _Roles = []
        for role, size in side:
            if role[0] == "f" and free and free[-1][0][0] == "f":
                free[-1] = (free[-1][0], free[-1][1] * size)
            else:
                free.append((role, size))
        names = {role: f"{role[0]}{k}" for kind in "bcf" for k, role in enumerate(_named(free, kind))}
        done.append([(names[role], size) for role, size in free])
    return done


def _last(side: _Roles, role: str) -> int:
    """Returns the position of an axis, or of the axis into which it was merged."""
    places = [k for k, (name, _) in enumerate(side) if name[0] == role[0] and name <= role]
    return max(places, key=lambda k: side[k][0])


def _follow(side: _Roles, place: int, second: str) -> bool:
    return place + 1 < len(side) and side[place + 1][0] == second


def _joined(side: _Roles, place: int, second: str) -> _Roles:
    (name, size), (_, more) = side[place], side[place + 1]
    return [*side[:place], (name, size * more), *side[place + 2 :]]


def _named(side: _Roles, kind: str) -> list[str]:
    return sorted(role for role, _ in side if role[0] == kind)
