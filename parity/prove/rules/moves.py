"""Data movement as views, and updates of an array at a known place as concatenations."""

import math
from collections.abc import Mapping, Sequence

from parity.ir.mlir import numbers
from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import Application, Term, Terms, Value
from parity.prove.rules.types import Array
from parity.prove.rules.views import View, whole

_INDICES = ("i32", "i64")
"""Types of starts; XLA on CPU clamps unsigned ones as if signed, and sizes do not fit into bytes."""


@RewriteRule(
    name="moves",
    rewrites="reshape, broadcast_in_dim, transpose, slice, dynamic_slice, gather of one window -> a view: an offset "
    "and a stride for each digit of a place; views of views composed",
    condition="digits fall on axes; a slice cuts one digit, or whole inner ones; starts are constants, signed, of 32 "
    "bits or more, or the slice is as long as the axis",
    argument="StableHLO defines each as a function from the result's place to the source's; functions compose. It "
    "clamps starts to [0, size - length]; the rule does the same to numbers it knows.",
    attacked_by="reshape of reshape",
    keeps_narrow=True,
)
def _moved(table: Terms, view: View | None) -> View | None:
    return table.accept("moves", view)


@normal_form("stablehlo.reshape")
def _reshape(table: Terms, op: Application) -> View | None:
    return _moved(table, op.operands[0].view)


@normal_form("stablehlo.broadcast_in_dim")
def _broadcast(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    axes = list(op.attributes["broadcast_dimensions"])
    if operand.type.count == op.out.count and axes == sorted(axes):
        return _moved(table, operand.view)
    view = operand.view if operand.type.count == 1 else table.repeated(operand.view)
    return _moved(table, view.broadcast(operand.type.shape, axes, op.out.shape))


@normal_form("stablehlo.transpose")
def _transpose(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    if table.nodes[operand.view.source][0].startswith("#count"):
        return None
    return _moved(table, operand.view.transposed(operand.type.shape, list(op.attributes["permutation"])))


@normal_form("stablehlo.slice")
def _slice(table: Terms, op: Application) -> View | None:
    (operand,) = op.operands
    starts, limits, steps = (
        list(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides")
    )
    return _part(table, operand, starts, limits, steps)


@normal_form("stablehlo.gather")
def _gather(table: Terms, op: Application) -> View | None:
    """Returns a gather of one window at a known place as a slice."""
    operand, place = op.operands
    text, sizes = str(op.attributes["dimension_numbers"]), list(op.attributes["slice_sizes"])
    axes, known = numbers(text, "start_index_map"), _places(table, place)
    if numbers(text, "operand_batching_dims") or place.type.count != len(axes):
        return None
    if known is None:
        return _moved_window(table, operand, sizes, dict.fromkeys(axes, place))
    return _window(table, operand, sizes, dict(zip(axes, known, strict=True)))


@normal_form("stablehlo.dynamic_slice")
def _dynamic_slice(table: Terms, op: Application) -> View | None:
    """Returns a dynamic slice with known starts as a slice; starts are clamped to the array."""
    operand, *places = op.operands
    sizes = list(op.attributes["slice_sizes"])
    starts = {axis: _places(table, place) for axis, place in enumerate(places)}
    known = {axis: start[0] for axis, start in starts.items() if start is not None}
    found = _window(table, operand, sizes, known)
    return _moved_window(table, operand, sizes, dict(enumerate(places))) if found is None else found


def _moved_window(
    table: Terms, operand: Value, sizes: Sequence[int], places: Mapping[int, Value], *new: View
) -> View | None:
    """Returns a window at an unknown place along one axis, or the operand with this window replaced by a new one."""
    shape = operand.type.shape
    cuts = [axis for axis, size in enumerate(sizes) if size != shape[axis]]
    place = places.get(cuts[0]) if len(cuts) == 1 else None
    if place is None or place.type.count > 1 or place.type.element not in _INDICES or not table.moved:
        return None
    views = operand.view, *new, place.view
    number = table.number(f"~window {shape} {list(sizes)} {len(new)}", *map(table.flat, views))
    table.built = True
    return table.accept("moved-update", whole(number, math.prod(shape if new else sizes)))


def _places(table: Terms, place: Value) -> list[int] | None:
    known = table.literal(place.view) if place.type.element in _INDICES else None
    return None if known is None else known.tolist()


def _window(table: Terms, operand: Value, sizes: Sequence[int], known: Mapping[int, int]) -> View | None:
    """Returns a window of some sizes; its first place along each axis is clamped, and known where it matters."""
    axes = list(enumerate(zip(operand.type.shape, sizes, strict=True)))
    if any(size != full and axis not in known for axis, (full, size) in axes):
        return None
    starts = [min(max(known.get(axis, 0), 0), full - size) for axis, (full, size) in axes]
    limits = [start + size for start, size in zip(starts, sizes, strict=True)]
    return _part(table, operand, starts, limits, [1] * len(sizes))


def _part(
    table: Terms, operand: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
) -> View | None:
    view, shape = operand.view, operand.type.shape
    found = _of_concatenation(table, operand, starts, limits, steps)
    return _moved(table, found or view.sliced(shape, starts, limits, steps))


def _of_concatenation(
    table: Terms, operand: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
) -> View | None:
    """Returns a slice within one part of a concatenation as a slice of that part."""
    reads = operand.view.is_whole and table.allows("concatenate")
    term, shape = table.terms.get(operand.view.source) if reads else None, operand.type.shape
    if term is None or term.name != "concatenate":
        return None
    cuts = [k for k, size in enumerate(shape) if (starts[k], limits[k], steps[k]) != (0, size, 1)]
    if len(cuts) != 1 or _joint(shape, cuts[0]) != term.note or steps[cuts[0]] != 1:
        return None
    outer, inner = math.prod(shape[: cuts[0]]), math.prod(shape[cuts[0] + 1 :])
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
    rewrites="a slice of one part of a concatenation -> that part's slice",
    condition="the slice has one step; parts and whole have one shape except along the axis",
    argument="Both say for each place of the result the same place of the same source. Compilers add up the parts of a "
    "concatenation one by one, so its axis counts.",
    attacked_by="half of a concatenation",
)
def _concatenate(table: Terms, op: Application) -> View | None:
    if not table.allows("concatenate"):
        return None
    axis, out = int(op.attributes["dimension"]), op.out
    if len(op.operands) == 2 and (padded := _as_pad(table, out, axis, op.operands)) is not None:
        return padded
    joint, views = _joint(out.shape, axis), tuple(operand.view for operand in op.operands)
    widths = [operand.type.shape[axis] for operand in op.operands]
    number = table.number(f"~concatenate {joint} {widths}", *map(table.flat, views))
    table.terms.setdefault(
        number, Term("concatenate", joint, views, (out.element,) * len(views), out.element)
    )
    table.use("concatenate")
    return whole(number, out.count)


@RewriteRule(
    name="pad",
    rewrites="concatenation of a known number, repeated, and an array; update of the former at a known place -> pad; "
    "update of a whole array -> the update",
    condition="two parts; no padding between elements; the number is at two places or more, else XLA keeps the parts",
    argument="Each place holds the same element. XLA's simplifier does the same before anything is fused.",
    attacked_by="shifted rows by concatenation or pad",
    keeps_narrow=True,
)
def _padded(table: Terms, out: Array, inner: Value, fill: View, lows: Sequence[int]) -> View | None:
    """Returns an array between copies of a number, of which some are before it along each axis."""
    is_fixed = table.known(inner.view) is not None or table.is_table(inner.view)
    if is_fixed or out.count - inner.type.count < 2 or not table.allows("pad"):
        return None
    table.use("pad")
    views = table.plain(inner.view), fill.moved([])
    word = f"~pad {inner.type.shape} {out.shape} {list(lows)}"
    return whole(table.number(word, *map(table.flat, views)), out.count)


def _as_pad(table: Terms, out: Array, axis: int, parts: Sequence[Value]) -> View | None:
    """Returns the concatenation of a known number, repeated, and another array as a pad; else None."""
    for fill, inner, low in ((parts[0], parts[1], parts[0].type.shape[axis]), (parts[1], parts[0], 0)):
        if table.known(fill.view) is not None:
            lows = [low if k == axis else 0 for k in range(len(out.shape))]
            return _padded(table, out, inner, fill.view, lows)
    return None


@RewriteRule(
    name="moved-update",
    rewrites="an update at a known place -> concatenation with the rest of the array; elsewhere scatter -> "
    "dynamic_update_slice, gather -> dynamic_slice",
    condition="one window, shorter along one axis, of a scatter inside for each remainder that its place is computed "
    "from; compiled code fuses it with data movement, choices and one product only",
    argument="Each place holds the same element, and nothing is added up.",
    attacked_by="row put in place or joined",
)
@RewriteRule(
    name="update-in-place",
    rewrites="an update of an array at a known place -> concatenation with the rest of the array",
    condition="the update is shorter than the array along one axis; it is inside, or starts are clamped",
    argument="Each place holds the same element; but XLA may add up a concatenation, or its negation, in parts.",
    attacked_by="row put in place or joined, then added to",
    loose=True,
)
def _replaced(
    table: Terms, out: Array, operand: Value, new: Array, view: View, starts: Sequence[int]
) -> View | None:
    """Returns an array with elements of another type and view in place, from a first place along each axis."""
    if new.shape == out.shape:
        return table.accept("pad", view)
    if table.known(operand.view) is not None:
        return _padded(table, out, Value(view, new), operand.view, starts)
    cuts = [axis for axis, size in enumerate(out.shape) if new.shape[axis] != size]
    rule = "moved-update" if table.moved and table.allows("moved-update") else "update-in-place"
    if len(cuts) != 1 or not table.allows(rule) or not table.allows("concatenate"):
        word = f"~update {list(out.shape)} {list(new.shape)} {list(starts)}"
        return whole(table.number(word, table.flat(operand.view), table.flat(view)), out.count)
    axis, full = cuts[0], out.shape[cuts[0]]
    first, last = starts[axis], starts[axis] + new.shape[axis]
    parts = []
    for low, high in ((0, first), (first, last), (last, full)):
        if low == high:
            continue
        lows, limits = [0] * len(out.shape), list(out.shape)
        lows[axis], limits[axis] = low, high
        found = view if low == first else _part(table, operand, lows, limits, [1] * len(limits))
        if found is None:
            return None
        size = tuple(limit - start for start, limit in zip(lows, limits, strict=True))
        parts.append(Value(found, Array(size, out.element)))
    table.use(rule)
    return _concatenate(table, Application({"dimension": axis}, out, parts))


@RewriteRule(
    name="scatter-in-place",
    rewrites="scatter of one window, which it replaces -> update of an array at that place",
    condition="one known index; the window is inside",
    argument="A scatter of one window writes each of its elements once. XLA makes the same operation of both.",
    attacked_by="row set or joined",
    keeps_narrow=True,
)
def window_replaced(table: Terms, text: str, out: Array, operands: Sequence[Value]) -> View | None:
    """Returns an array with one window replaced, by the text of its axes; None unless its place is known and inside."""
    operand, place, new = operands
    axes, known = numbers(text, "scatter_dims_to_operand_dims"), _places(table, place)
    if place.type.count != len(axes):
        return None
    sizes = [new.type.shape[axis] for axis in numbers(text, "update_window_dims")]
    for axis in sorted(numbers(text, "inserted_window_dims")):
        sizes.insert(axis, 1)
    if known is None and len(axes) == 1 and len(sizes) == len(out.shape):
        (axis,), (_, starts) = axes, table.tables.get(place.view.source, (0, [-1]))
        if min(starts) >= 0 and max(starts) + sizes[axis] <= out.shape[axis]:
            return _moved_window(table, operand, sizes, {axis: place}, new.view)
    if known is None or not table.allows("scatter-in-place"):
        return None
    starts = dict(zip(axes, known, strict=True))
    firsts = [starts.get(axis, 0) for axis in range(len(sizes))]
    ends = zip(firsts, sizes, out.shape, strict=False)
    if len(sizes) != len(out.shape) or any(first < 0 or first + size > full for first, size, full in ends):
        return None
    # XLA writes the largest starts (0, n) as an iota, and then checks the bounds of the window at run time.
    if (len(known) > 1 or (len(sizes), *axes) == (2, 1)) and not table.is_by_value():
        return None
    made = _replaced(table, out, operand, Array(tuple(sizes), out.element), new.view, firsts)
    return table.accept("scatter-in-place", made)


def _joint(shape: Sequence[int], axis: int) -> str:
    """Returns the shape of an array without the size of one axis, as text."""
    return str([*shape[:axis], "*", *shape[axis + 1 :]])


@normal_form("stablehlo.pad")
def _pad(table: Terms, op: Application) -> View | None:
    """Returns a pad of a known number as such, and one that only removes elements, or none, as a slice."""
    operand, fill = op.operands
    low, high, gaps = (
        op.attributes[name] for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    inside = [gap * (size > 1) for size, gap in zip(operand.type.shape, gaps, strict=True)]
    if max([*low, *high, *inside, 0]) == 0:
        limits = [size + more for size, more in zip(operand.type.shape, high, strict=True)]
        return _part(table, operand, [-less for less in low], limits, [1] * len(limits))
    is_plain = min([*low, *high, 0]) == 0 == max([*inside, 0]) and table.known(fill.view) is not None
    return _padded(table, op.out, operand, fill.view, low) if is_plain else None


@normal_form("stablehlo.dynamic_update_slice")
def _update(table: Terms, op: Application) -> View | None:
    """Returns an update at a known place as a concatenation; starts are clamped."""
    operand, new, *starts = op.operands
    firsts = []
    for size, full, start in zip(new.type.shape, operand.type.shape, starts, strict=True):
        known = [0] if size == full else _places(table, start)
        if known is None:
            return _moved_window(table, operand, new.type.shape, dict(enumerate(starts)), new.view)
        firsts.append(min(max(known[0], 0), full - size))
    return _replaced(table, op.out, operand, new.type, new.view, firsts)
