"""Pads as one: pads of pads, and updates of a constant at a known place."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from parity.prove.rules.terms import Term, Terms, Value
from parity.prove.rules.types import Array
from parity.prove.rules.views import View, whole

__all__ = ["pad", "update"]

_Edges = tuple[tuple[int, int, int, int], ...]
"""For each axis that is longer than one, or padded: its size, and what is put before, behind and between."""


@dataclasses.dataclass(frozen=True, slots=True)
class Padding(Term):
    """A pad in normal form; its operands are what is padded, and the one element around it."""

    edges: _Edges = ()


def pad(table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]) -> View | None:
    """Returns a pad: its operand where nothing is added, else one pad of what is not padded with the same."""
    operand, value = operands
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    edges = zip(operand.type.shape, *(list(attributes[name]) for name in names), strict=True)
    return _padded(table, "pad", out, (operand.view, value.view), tuple(edges))


def update(table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]) -> View | None:
    """Returns an update of one element everywhere, at a known place, as a pad; starts are clamped."""
    operand, new, *starts = operands
    if not operand.view.is_splat:
        return None
    edges = []
    for size, full, start in zip(new.type.shape, operand.type.shape, starts, strict=True):
        known = 0 if size == full else table.scalar(start.view)
        if known is None:
            return None
        first = min(max(known, 0), full - size)
        edges.append((size, first, full - size - first, 0))
    around = View(operand.view.source, operand.view.size, operand.view.offset, ())
    return _padded(table, "update-as-pad", out, (new.view, around), tuple(edges))


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
    """Returns what negative edges leave of an array, and the other edges; None where there are holes in it."""
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
    """Returns two pads as one; None where the axes of one are not those of the other."""
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
