"""Data movement as views."""

import math
from collections.abc import Sequence

from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import Application, Term, Terms, Value
from parity.prove.rules.types import Array
from parity.prove.rules.views import View, joined, whole

__all__ = ["replaced"]


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
    return _counted(table, "reshape", op.operands[0].view)


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
        return _counted(table, "unit-dims", operand.view)
    return _counted(table, "broadcast", operand.view.broadcast(operand.type.shape, axes, op.out.shape))


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
    return _counted(table, "transpose", view)


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
    return _counted(
        table, "reverse", operand.view.reversed(operand.type.shape, list(op.attributes["dimensions"]))
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
    return _counted(table, "static-slice", view)


def _part(
    table: Terms, operand: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
) -> View | None:
    view, shape = operand.view, operand.type.shape
    found = _of_concatenation(table, operand, starts, limits, steps)
    return _counted(table, "slice", found or view.sliced(shape, starts, limits, steps))


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
def replaced(
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


def _counted(table: Terms, rule: str, view: View | None) -> View | None:
    if view is None or not table.allows(rule):
        return None
    table.use(rule)
    return view
