"""Data movement as views, and pads in normal form: pads of pads, and updates of a constant at a known place."""

import dataclasses
import math
from collections.abc import Sequence

from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import Application, Term, Terms, Value
from parity.prove.rules.types import Array
from parity.prove.rules.views import View, joined, whole

_Edges = tuple[tuple[int, int, int, int], ...]
"""For each axis that is padded or longer than one: its size, and the padding before, after and between elements."""


@normal_form("stablehlo.reshape")
@RewriteRule(
    name="reshape",
    rewrites="reshape -> the same elements in the same order",
    condition="any",
    argument="StableHLO defines reshape by row-major order; places do not change.",
    attacked_by="reshape of reshape",
    keeps_narrow=True,
)
def _reshape(table: Terms, op: Application) -> View | None:
    return table.accept("reshape", op.operands[0].view)


@normal_form("stablehlo.broadcast_in_dim")
@RewriteRule(
    name="unit-dims",
    rewrites="broadcast_in_dim that adds axes of size one only -> reshape",
    condition="as many elements as before, axes in ascending order",
    argument="Each element occurs once and in the old order.",
    attacked_by="unit axis by broadcast or by reshape",
    keeps_narrow=True,
)
@RewriteRule(
    name="broadcast",
    rewrites="broadcast_in_dim -> a digit of stride zero; broadcasts of broadcasts and of other views composed",
    condition="the source's digits fall on its axes",
    argument="The result's place is a function of the source's place; functions compose.",
    attacked_by="mask with unit axes or without",
    keeps_narrow=True,
)
def _broadcast(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    axes = list(op.attributes["broadcast_dimensions"])
    if operand.type.count == op.out.count and axes == sorted(axes):
        return table.accept("unit-dims", operand.view)
    return table.accept("broadcast", operand.view.broadcast(operand.type.shape, axes, op.out.shape))


@normal_form("stablehlo.transpose")
@RewriteRule(
    name="transpose",
    rewrites="transpose -> digits in another order; compositions merged, identities removed",
    condition="digits fall on axes",
    argument="As for broadcast.",
    attacked_by="two transpositions for none",
    keeps_narrow=True,
)
def _transpose(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    view = operand.view.transposed(operand.type.shape, list(op.attributes["permutation"]))
    return table.accept("transpose", view)


@normal_form("stablehlo.reverse")
@RewriteRule(
    name="reverse",
    rewrites="reverse -> digits that count backwards",
    condition="digits fall on axes",
    argument="i becomes size - 1 - i in an axis, hence in each of its digits.",
    attacked_by="reverse twice",
)
def _reverse(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    return table.accept(
        "reverse", operand.view.reversed(operand.type.shape, list(op.attributes["dimensions"]))
    )


@normal_form("stablehlo.slice")
@RewriteRule(
    name="slice",
    rewrites="slice -> an offset and shorter digits; slices of slices composed, whole slices removed",
    condition="the slice cuts one digit, or whole inner ones",
    argument="As for broadcast.",
    attacked_by="slice of a slice",
    keeps_narrow=True,
)
def _slice(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    starts, limits, steps = (
        list(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides")
    )
    return _part(table, operand, starts, limits, steps)


@normal_form("stablehlo.dynamic_slice")
@RewriteRule(
    name="static-slice",
    rewrites="dynamic_slice -> slice",
    condition="the starts are known integers, or the slice is as long as the axis",
    argument="StableHLO clamps starts to [0, size - length]; the rule does the same to numbers it knows.",
    attacked_by="dynamic slice at one known start or another",
    keeps_narrow=True,
)
def _dynamic_slice(table: Terms, op: Application) -> View | None:
    """Returns a dynamic slice with known starts as a slice; starts are clamped to the array."""
    operand, *places = op.operands
    sizes = list(op.attributes["slice_sizes"])
    known = [
        0 if size == full else table.scalar(place.view)
        for size, full, place in zip(sizes, operand.type.shape, places, strict=True)
    ]
    starts = [start for start in known if start is not None]
    if len(starts) < len(known) or not table.allows("static-slice"):
        return None
    starts = [
        min(max(start, 0), full - size)
        for start, full, size in zip(starts, operand.type.shape, sizes, strict=True)
    ]
    limits = [start + size for start, size in zip(starts, sizes, strict=True)]
    view = _part(table, operand, starts, limits, [1] * len(sizes))
    return table.accept("static-slice", view)


def _part(
    table: Terms, operand: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
) -> View | None:
    view, shape = operand.view, operand.type.shape
    found = _of_concatenation(table, operand, starts, limits, steps)
    return table.accept("slice", found or view.sliced(shape, starts, limits, steps))


def _of_concatenation(
    table: Terms, operand: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
) -> View | None:
    """Returns a slice within one part of a concatenation as a slice of that part."""
    term, shape = table.terms.get(operand.view.source), operand.type.shape
    if (
        term is None
        or term.name != "concatenate"
        or not operand.view.is_whole
        or not table.allows("concatenate")
    ):
        return None
    cuts = [k for k, size in enumerate(shape) if (starts[k], limits[k], steps[k]) != (0, size, 1)]
    if len(cuts) != 1 or math.prod(shape[: cuts[0]]) != int(term.note) or steps[cuts[0]] != 1:
        return None
    outer, inner = int(term.note), math.prod(shape[cuts[0] + 1 :])
    first, last = starts[cuts[0]] * inner, limits[cuts[0]] * inner
    for part in term.operands:
        width = part.count // outer
        if first >= 0 and last <= width:
            table.use("concatenate")
            return part.sliced((outer, width), (0, first), (outer, last), (1, 1))
        first, last = first - width, last - width
        if first < 0:
            return None
    return None


@normal_form("stablehlo.concatenate")
@RewriteRule(
    name="concatenate",
    rewrites="concatenate of neighbouring slices -> the slice of both; nested ones flattened; "
    "a slice of one part -> that part's slice",
    condition="one source, one step, the second starts where the first ends; the same axis up to unit axes",
    argument="Both say for each place of the result the same place of the same source.",
    attacked_by="slices put together again",
)
def _concatenate(table: Terms, op: Application) -> View | None:
    if not table.allows("concatenate"):
        return None
    axis = int(op.attributes["dimension"])
    out = op.out
    outer, inner = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
    parts: list[tuple[View, int]] = []
    for operand in op.operands:
        for part, width in _pieces(table, operand, axis, outer, inner):
            both = joined(parts[-1][0], part, outer, (parts[-1][1], width), inner) if parts else None
            if both is None:
                parts.append((part, width))
            else:
                table.use("concatenate")
                parts[-1] = (both, parts[-1][1] + width)
    if len(parts) == 1:
        table.use("concatenate")
        return parts[0][0]
    views = tuple(view for view, _ in parts)
    widths = [width * inner for _, width in parts]
    number = table.number(f"~concatenate {outer} {widths}", *[table.flat(view) for view in views])
    table.terms.setdefault(number, Term("concatenate", str(outer), views, (out.element,) * len(views)))
    table.use("concatenate")
    return whole(number, out.count)


@RewriteRule(
    name="update-in-place",
    rewrites="an update of an array at a known place -> concatenation with the rest of the array",
    condition="the update is shorter than the array along one axis; it is inside, or starts are clamped",
    argument="Both hold the update's elements in its place, and the array's elements elsewhere.",
    attacked_by="row put in place or joined",
)
def _replaced(
    table: Terms, out: Array, operand: Value, new: Array, view: View, starts: Sequence[int]
) -> View | None:
    """Returns an array with some elements replaced as a concatenation; None unless one axis is cut.

    Args:
        table: table in which terms are numbered.
        out: type of the array.
        operand: the array.
        new, view: type of the replacement in the axes of the array, and its elements.
        starts: its first place along each axis.
    """
    cuts = [axis for axis, size in enumerate(out.shape) if new.shape[axis] != size]
    if len(cuts) != 1 or not table.allows("update-in-place") or not table.allows("concatenate"):
        return None
    axis, full = cuts[0], out.shape[cuts[0]]
    first, last = starts[axis], starts[axis] + new.shape[axis]
    parts = []
    for low, high in ((0, first), (first, last), (last, full)):
        size = [*out.shape[:axis], high - low, *out.shape[axis + 1 :]]
        kind = Array(tuple(size), out.element)
        limits = [high if k == axis else length for k, length in enumerate(out.shape)]
        lows = [low if k == axis else 0 for k in range(len(out.shape))]
        found = view
        if (low, high) != (first, last):
            found = None if low == high else operand.view.sliced(out.shape, lows, limits, [1] * len(limits))
        if found is None and low < high:
            return None
        parts += [] if found is None else [Value(found, kind)]
    table.use("update-in-place")
    return _concatenate(table, Application({"dimension": axis}, out, parts))


def _pieces(table: Terms, operand: Value, axis: int, outer: int, inner: int) -> list[tuple[View, int]]:
    """Returns the parts of a concatenation along the same axis, or else the operand, with their sizes along it."""
    term = table.terms.get(operand.view.source)
    if term and term.name == "concatenate" and operand.view.is_whole and int(term.note) == outer:
        widths = [part.count // outer for part in term.operands]
        if all(width % inner == 0 for width in widths):
            return [(part, width // inner) for part, width in zip(term.operands, widths, strict=True)]
    return [(operand.view, operand.type.shape[axis])]


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
        return _replaced(table, op.out, operand, new.type, new.view, firsts)
    edges = tuple(
        (size, first, full - size - first, 0)
        for size, full, first in zip(new.type.shape, operand.type.shape, firsts, strict=True)
    )
    around = View(operand.view.source, operand.view.size, operand.view.offset, ())
    return _padded(table, "update-as-pad", op.out, (new.view, around), edges)


def _padded(table: Terms, rule: str, out: Array, views: tuple[View, View], edges: _Edges) -> View | None:
    edges = tuple((size, low, high, gap if size > 1 else 0) for size, low, high, gap in edges)
    inner, around = views
    if not any(low or high or gap for _, low, high, gap in edges):
        return table.accept("empty-pad" if rule == "pad" else rule, inner)
    if not table.allows(rule):
        return None
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
