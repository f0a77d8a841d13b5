"""Pads in normal form: pads of pads, and updates of a constant at a known place."""

import dataclasses

from parity.prove.rules.moves import replaced
from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import Application, Term, Terms
from parity.prove.rules.types import Array
from parity.prove.rules.views import View, whole

_Edges = tuple[tuple[int, int, int, int], ...]
"""For each axis that is padded or longer than one: its size, and the padding before, after and between elements."""


@dataclasses.dataclass(frozen=True, slots=True)
class Padding(Term):
    """A pad in normal form; its operands are the padded array and the one element around it."""

    edges: _Edges = ()


@normal_form("stablehlo.pad")
@RewriteRule(
    name="empty-pad",
    rewrites="pad by nothing -> its operand",
    condition="low and high padding zero, interior zero or an axis of size one",
    argument="No element is added or dropped.",
    attacked_by="pad by nothing",
    keeps_narrow=True,
)
@RewriteRule(
    name="pad",
    rewrites="a pad of a pad with the same element -> one pad; axes of size one that are not padded -> none; "
    "negative edges -> a slice",
    condition="one element around both, no holes where edges are negative",
    argument="Place p of the inner array becomes low + p * (1 + gap) of the outer; such functions compose; "
    "but compiled code had other bits at level 3.",
    attacked_by="pad of a pad",
    loose=True,
)
def _pad(table: Terms, op: Application) -> View | None:
    """Returns a pad in normal form, or its operand if it adds nothing; pads of pads with one element are merged."""
    operand, value = op.operands
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    edges = zip(operand.type.shape, *(list(op.attributes[name]) for name in names), strict=True)
    return _padded(table, "pad", op.out, (operand.view, value.view), tuple(edges))


@normal_form("stablehlo.dynamic_update_slice")
@RewriteRule(
    name="update-as-pad",
    rewrites="dynamic_update_slice of one element everywhere -> pad of the update with that element",
    condition="the starts are known integers, or the update is as long as the axis; starts are clamped",
    argument="Both hold the update's elements in its place and the one element around it; but see pad.",
    attacked_by="put into zeros here or there",
    loose=True,
)
def _update(table: Terms, op: Application) -> View | None:
    """Returns an update at a known place as a concatenation, or as a pad if it is of a splat; starts are clamped."""
    operand, new, *starts = op.operands
    firsts = []
    for size, full, start in zip(new.type.shape, operand.type.shape, starts, strict=True):
        known = 0 if size == full else table.scalar(start.view)
        if known is None:
            return None
        firsts.append(min(max(known, 0), full - size))
    if not operand.view.is_splat or not table.allows("update-as-pad"):
        return replaced(table, op.out, operand, new.type, new.view, firsts)
    edges = tuple(
        (size, first, full - size - first, 0)
        for size, full, first in zip(new.type.shape, operand.type.shape, firsts, strict=True)
    )
    around = View(operand.view.source, operand.view.size, operand.view.offset, ())
    return _padded(table, "update-as-pad", op.out, (new.view, around), edges)


def _padded(table: Terms, rule: str, out: Array, views: tuple[View, View], edges: _Edges) -> View | None:
    edges = tuple((size, low, high, gap if size > 1 else 0) for size, low, high, gap in edges)
    if not any(low or high or gap for _, low, high, gap in edges):
        rule = "empty-pad" if rule == "pad" else rule
        if not table.allows(rule):
            return None
        table.use(rule)
        return views[0]
    if not table.allows(rule):
        return None
    inner, around = views
    if any(low < 0 or high < 0 for _, low, high, _ in edges):
        cut = _cut(inner, edges)
        if cut is None:
            return None
        table.use(rule)
        return _padded(table, rule, out, (cut[0], around), cut[1])
    edges = tuple(edge for edge in edges if edge[0] > 1 or any(edge[1:]))
    below = table.terms.get(inner.source)
    if isinstance(below, Padding) and inner.is_whole and below.operands[1] == around:
        both = _composed(below.edges, edges)
        if both is not None:
            inner, edges = below.operands[0], both
    number = table.number(f"~pad {out.element} {edges}", table.flat(inner), table.flat(around))
    made = Padding("pad", "", (inner, around), (out.element, out.element), edges)
    table.terms.setdefault(number, made)
    table.use(rule)
    return whole(number, out.count)


def _cut(view: View, edges: _Edges) -> tuple[View, _Edges] | None:
    """Returns the part of an array that negative edges leave, and the other edges; None if there are holes."""
    if any(gap and (low < 0 or high < 0) for _, low, high, gap in edges):
        return None
    starts = [max(-low, 0) for _, low, _, _ in edges]
    limits = [size - max(-high, 0) for size, _, high, _ in edges]
    if any(start >= limit for start, limit in zip(starts, limits, strict=True)):
        return None
    part = view.sliced([size for size, *_ in edges], starts, limits, [1] * len(edges))
    left = tuple(
        (limit - start, max(low, 0), max(high, 0), gap)
        for (_, low, high, gap), start, limit in zip(edges, starts, limits, strict=True)
    )
    return None if part is None else (part, left)


def _composed(inner: _Edges, outer: _Edges) -> _Edges | None:
    """Returns two pads as one; None if their axes do not match."""
    lengths = [low + (size - 1) * (1 + gap) + 1 + high for size, low, high, gap in inner]
    if lengths != [size for size, *_ in outer]:
        return None
    return tuple(
        (
            size,
            far_low + low * (1 + wide),
            far_high + high * (1 + wide),
            (1 + gap) * (1 + wide) - 1 if size > 1 else 0,
        )
        for (size, low, high, gap), (_, far_low, far_high, wide) in zip(inner, outer, strict=True)
    )
