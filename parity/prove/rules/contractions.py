"""Reductions and products of matrices by the roles of their axes, regardless of their shapes."""

import itertools
import math
import operator
from collections.abc import Sequence

from parity.ir.mlir import numbers
from parity.ir.stablehlo.program import Region, combiner
from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import Application, Terms, Value
from parity.prove.rules.views import View, whole

_NEUTRAL = {"stablehlo.add": 0, "stablehlo.and": True}


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
    if not table.applies("reduce-merged"):
        return None
    sizes = [(axis in axes, size) for axis, size in enumerate(shape) if size > 1]
    groups = itertools.groupby(sizes, key=operator.itemgetter(0))
    return [(reduced, math.prod(size for _, size in group)) for reduced, group in groups]


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
    if start.type.element != operand.type.element:
        return None
    known, neutral = table.known(start.view), _NEUTRAL.get(combiner(body))
    if known is None or known != neutral or (neutral is True and operand.type.element != "i1"):
        return None
    table.use("sum-of-one")
    return operand.view


@normal_form("stablehlo.dot_general")
@RewriteRule(
    name="dot-axes",
    rewrites="free and batch axes of dot_general of size one -> none; neighbouring free axes, or axes that are "
    "neighbours in the batch of both operands -> one axis",
    condition="neighbours in the same order in the operand; if there are several, the batch comes first, then "
    "the free axes on the left and the contracted ones on the right, else XLA moves elements; no contracted axis "
    "of size one next to another",
    argument="The same products are added in the same order; XLA makes one free axis of several before it "
    "chooses how to compute.",
    attacked_by="heads in the weights",
)
def _dot(table: Terms, op: Application) -> View | None:
    """Returns a product of matrices by the roles of its axes; None if no rule is allowed."""
    if not table.allows("dot-axes"):
        return None
    text, sizes = str(op.attributes["dot_dimension_numbers"]), []
    for side, roles, operand in zip(("lhs", "rhs"), ("bfc", "bcf"), op.operands, strict=True):
        shape = operand.type.shape
        axes = {role[0]: numbers(text, f"{side}_{role}_dimensions") for role in ("batching", "contracting")}
        axes["f"] = tuple(k for k in range(len(shape)) if k not in (*axes["b"], *axes["c"]))
        order, contracted = [k for role in roles for k in axes[role]], [shape[k] for k in axes["c"]]
        if order != sorted(order) and max(len(axes["b"]), len(axes["f"])) > 1:
            return None
        if len(contracted) > 1 and 1 in contracted:
            return None
        kept = [k for k in order if shape[k] > 1 or k in axes["c"]]
        moved = [] if kept == sorted(kept) else [sorted(kept).index(k) for k in kept]
        sizes.append([moved, *(math.prod(shape[k] for k in axes[role]) for role in "bf"), contracted])
    table.use("dot-axes")
    notes = sorted(
        (key, str(value)) for key, value in op.attributes.items() if key != "dot_dimension_numbers"
    )
    table.built = True
    views = [table.flat(operand.view) for operand in op.operands]
    return whole(table.number(f"~dot {sizes} {notes} {op.out.element}", *views), op.out.count)
