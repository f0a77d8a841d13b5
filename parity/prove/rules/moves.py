"""Data movement as views."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.prove.rules.contractions import dot
from parity.prove.rules.pads import pad, update
from parity.prove.rules.terms import Term, Terms, Value
from parity.prove.rules.types import Array
from parity.prove.rules.views import View, joined, whole

__all__ = ["MOVES"]

_Move = Callable[[Terms, Mapping[str, Any], Array, Sequence[Value]], View | None]
"""Makes a view of an operation from its attributes, result type and operands; None where no rule applies."""


def _reshape(
    table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]
) -> View | None:
    return _counted(table, "reshape", operands[0].view)


def _broadcast(
    table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]
) -> View | None:
    (operand,) = operands
    axes = list(attributes["broadcast_dimensions"])
    if operand.type.count == out.count and axes == sorted(axes):
        return _counted(table, "unit-dims", operand.view)
    return _counted(table, "broadcast", operand.view.broadcast(operand.type.shape, axes, out.shape))


def _transpose(
    table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]
) -> View | None:
    (operand,) = operands
    view = operand.view.transposed(operand.type.shape, list(attributes["permutation"]))
    return _counted(table, "transpose", view)


def _reverse(
    table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]
) -> View | None:
    (operand,) = operands
    return _counted(
        table, "reverse", operand.view.reversed(operand.type.shape, list(attributes["dimensions"]))
    )


def _slice(table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]) -> View | None:
    (operand,) = operands
    starts, limits, steps = (list(attributes[name]) for name in ("start_indices", "limit_indices", "strides"))
    return _part(table, operand, starts, limits, steps)


def _dynamic_slice(
    table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]
) -> View | None:
    """A dynamic slice whose starts are known is a slice; starts are clamped so that it lies inside."""
    operand, *places = operands
    sizes = list(attributes["slice_sizes"])
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
    """Returns a slice that lies inside of one part of a concatenation as a slice of that part."""
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


def _concatenate(
    table: Terms, attributes: Mapping[str, Any], out: Array, operands: Sequence[Value]
) -> View | None:
    if not table.allows("concatenate"):
        return None
    axis = int(attributes["dimension"])
    outer, inner = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
    parts: list[tuple[View, int]] = []
    for operand in operands:
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


def _pieces(table: Terms, operand: Value, axis: int, outer: int, inner: int) -> list[tuple[View, int]]:
    """Returns the parts of a concatenation along the same axis, else the operand, with their sizes along it."""
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


MOVES: dict[str, _Move] = {
    "stablehlo.reshape": _reshape,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.transpose": _transpose,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": update,
    "stablehlo.pad": pad,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dot_general": dot,
}
"""What each operation that moves elements, or multiplies matrices, becomes."""
