"""Handlers of StableHLO operations on cells: element by element, and moves of dimensions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from parity.ir.jax_internals import ir
from parity.ir.mlir import dense_array
from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.prove.exact.contents import Step
from parity.prove.exact.pieces import Data
from parity.prove.exact.scalars import is_signed, width
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import REAL, RefusalError

Handler = Callable[[Tensors, Step, Sequence[Tensor]], list[Tensor]]

NOT_OF_REALS = frozenset({"chlo.next_after", "stablehlo.reduce_precision"}) | names_of(
    "complex", "imag", "real"
)
"""Elementwise operations that are refused: real numbers have no float bits and no imaginary parts."""
ELEMENTWISE = names_of(Group.ELEMENTWISE) - NOT_OF_REALS


def function_of(tensors: Tensors, step: Step) -> Callable[..., int]:
    """Returns the function of an elementwise operation on cells, one from each operand."""
    name, sort, algebra = facts(step.name).short, step.sorts[0], tensors.algebra
    reals: dict[str, Callable[..., int]] = {
        "add": lambda a, b: algebra.total(((1, a), (1, b))),
        "subtract": lambda a, b: algebra.total(((1, a), (-1, b))),
        "negate": lambda a: algebra.total(((-1, a),)),
        "multiply": lambda a, b: algebra.product((a, b)),
        "divide": lambda a, b: algebra.product((a, algebra.reciprocal(b))),
        "square": lambda a: algebra.product((a, a)),
        "convert": lambda a: algebra.narrowed(algebra.map("convert", [a], sort), step.element),
    }
    if sort == REAL and name in reals:
        return reals[name]
    if is_extreme(name, sort):
        return lambda a, b: algebra.extreme(name, (a, b), sort)
    if name == "compare" and "TOTALORDER" in (kind := step.text("compare_type")):
        raise RefusalError(f"compare: got {kind}, expected the order of numbers")
    detail = direction(step) if name == "compare" else None
    return lambda *cells: algebra.map(name, cells, sort, detail)


def is_extreme(name: str, sort: str) -> bool:
    """True for maxima and minima of reals, conjunctions and disjunctions."""
    return name in {REAL: ("maximum", "minimum"), "i1": ("and", "or")}.get(sort, ())


def direction(step: Step) -> str:
    """Returns the direction of a comparison, such as ``GE``."""
    return step.text("comparison_direction").split()[-1].rstrip(">")


def elementwise(
    tensors: Tensors, step: Step, operands: Sequence[Tensor], function: Callable[..., int] | None = None
) -> list[Tensor]:
    """Applies an operation place by place; scalars of ``select`` and ``clamp`` apply to every element."""
    shape = step.shapes[0]
    same = [x if x.shape == shape else tensors.moved(x, (), shape) for x in operands]
    return [tensors.zip_cells(function or function_of(tensors, step), same, step.sorts[0])]


def constant(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a constant: one element for all, or data that is read when an index is needed."""
    (shape,), (sort,), value = step.shapes, step.sorts, step.attributes["value"]
    if isinstance(value, ir.DenseElementsAttr) and value.is_splat:
        number = cast(Any, value.get_splat_value()).value
        known = str(value).partition(" : ")[0] if number != number else number
        return [tensors.uniform(tensors.algebra.element(known, sort), shape, sort)]
    array = dense_array(value)
    if array is None:
        raise RefusalError(f"constant: got elements of {step.element}, expected those that NumPy has")
    axes = [(dim, size) for dim, size in enumerate(shape) if size > 1]
    return [tensors.uniform(tensors.pieces.data(Data.of(array), axes, sort), shape, sort)]


def iota(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the index along a dimension, which is an integer for every element type."""
    (shape,), (sort,), (dim,) = step.shapes, step.sorts, step.dims("iota_dimension")
    if shape[dim] == 1:
        return [tensors.uniform(tensors.algebra.constant(0, sort), shape, sort)]
    kept = "i32" if sort == REAL else sort
    cell = tensors.terms.leaf("iota", None, [(dim, shape[dim])], kept)
    if sort == REAL:
        cell = tensors.algebra.map("convert", [cell], REAL)
    return [tensors.uniform(cell, shape, sort)]


def transpose(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the operand with its dimensions in another order."""
    to = np.argsort(step.dims("permutation")).tolist()
    return [tensors.moved(operands[0], to, step.shapes[0])]


def bitcast(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the bits of integers as another type, such as those of a random number."""
    x, sort = operands[0], step.sorts[0]
    if x.sort == REAL or x.shape != step.shapes[0]:
        raise RefusalError("bitcast_convert: got the bits of a real number, or of another width")
    detail = step.element
    cast = lambda cell: tensors.terms.make("map", ("bitcast_convert", detail), [cell], sort)  # noqa: E731
    return [tensors.zip_cells(cast, [x], sort)]


def cut(tensors: Tensors, x: Tensor, dim: int, bounds: tuple[int, int, int]) -> Tensor:
    """Returns the part ``start, stop, stride`` of a dimension."""
    start, stop, stride = bounds
    length = max(-(-(stop - start) // stride), 0)
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    if length == x.shape[dim]:
        return x
    if x.is_split(dim) or length == 0 or x.shape[dim] == 1:
        index = (slice(None),) * dim + (slice(start, start + length * stride, stride),)
        return Tensor(x.cells[index], shape, x.sort)
    cells = tensors.map_cells(lambda cell: tensors.pieces.cut(cell, dim, bounds, dim), x.cells)
    return Tensor(cells, shape, x.sort)


def part(tensors: Tensors, x: Tensor, dim: int, index: int) -> Tensor:
    """Returns the tensor at one index of a dimension, without that dimension."""
    found = cut(tensors, tensors.split(x, dim), dim, (index, index + 1, 1))
    return tensors.reshape(found, (*x.shape[:dim], *x.shape[dim + 1 :]))


def slice_(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a static slice, one dimension after another."""
    x = operands[0]
    bounds = zip(step.dims("start_indices"), step.dims("limit_indices"), step.dims("strides"), strict=True)
    for dim, each in enumerate(bounds):
        x = cut(tensors, x, dim, each)
    return [x]


def join(tensors: Tensors, parts: Sequence[Tensor], dim: int) -> Tensor:
    """Returns the concatenation of tensors along a dimension."""
    parts = [x for x in parts if x.shape[dim]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[dim] = sum(x.shape[dim] for x in parts)
    is_split = any(x.is_split(dim) for x in parts) or all(x.shape[dim] == 1 for x in parts)
    if is_split:
        for other in range(len(shape)):
            if other == dim or any(x.is_split(other) for x in parts):
                parts = [tensors.split(x, other) for x in parts]
        return Tensor(np.concatenate([x.cells for x in parts], dim), tuple(shape), parts[0].sort)
    sizes = [x.shape[dim] for x in parts]

    def joined(*row: int) -> int:
        return tensors.pieces.join(list(zip(row, sizes, strict=True)), dim, dim)

    made = tensors.zip_cells(joined, parts, parts[0].sort)
    return dataclasses.replace(made, shape=tuple(shape))


def pad(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a join with the padding value. Negative padding cuts; interior padding splits the dimension."""
    x, value = operands
    paddings = (step.dims(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    for dim, (low, high, interior) in enumerate(zip(*paddings, strict=True)):
        if interior and x.shape[dim] > 1:
            hole = tensors.split(_filled(tensors, value, x, dim, interior), dim)
            x = tensors.split(x, dim)
            rows = [cut(tensors, x, dim, (index, index + 1, 1)) for index in range(x.shape[dim])]
            x = join(tensors, [part for row in rows for part in (row, hole)][:-1], dim)
        if max(-low, 0) + max(-high, 0) > x.shape[dim]:
            raise RefusalError("pad: got edges that cut off more than there is")
        x = cut(tensors, x, dim, (max(-low, 0), x.shape[dim] - max(-high, 0), 1))
        before, after = (_filled(tensors, value, x, dim, max(length, 0)) for length in (low, high))
        x = join(tensors, [before, x, after], dim)
    return [x]


def _filled(tensors: Tensors, value: Tensor, x: Tensor, dim: int, length: int) -> Tensor:
    """Returns a tensor of one value, with the shape of another one except along a dimension."""
    return tensors.moved(value, (), (*x.shape[:dim], length, *x.shape[dim + 1 :]))


def index_of(tensors: Tensors, x: Tensor, most: int) -> int:
    """Returns an index that must be known from the schedule, at least 0 and at most ``most``."""
    value = tensors.algebra.literal(x.only)
    if not isinstance(value, int):
        raise RefusalError("got an index that depends on the inputs, expected one that the schedule fixes")
    return min(max(signed_index(value, x.sort), 0), most)


def signed_index(value: int, sort: str) -> int:
    """Returns an index that is equal as signed and unsigned, because XLA sometimes reads 200 of ``ui8`` as -56."""
    if not is_signed(sort) and value >> width(sort) - 1:
        raise RefusalError(f"got the index {value} of {sort}, expected one that is not negative with a sign")
    return value


def dynamic_slice(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a slice at known indices, which are clamped."""
    x, *starts = operands
    for dim, (start, size) in enumerate(zip(starts, step.dims("slice_sizes"), strict=True)):
        if size < x.shape[dim]:
            first = index_of(tensors, start, x.shape[dim] - size)
            x = cut(tensors, x, dim, (first, first + size, 1))
    return [x]


def dynamic_update_slice(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns an update at known indices; the dimensions that it does not fill are split."""
    x, update, *starts = operands
    index = []
    for dim, (start, size) in enumerate(zip(starts, update.shape, strict=True)):
        partly = size < x.shape[dim]
        first = index_of(tensors, start, x.shape[dim] - size) if partly else 0
        if partly or x.is_split(dim) or update.is_split(dim):
            x, update = tensors.split(x, dim), tensors.split(update, dim)
        index.append(slice(first, first + size) if partly else slice(None))
    cells = x.cells.copy()
    cells[tuple(index)] = update.cells
    return [Tensor(cells, x.shape, x.sort)]


def reverse(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the operand with dimensions reversed; each is split."""
    x = operands[0]
    for dim in step.dims("dimensions"):
        x = tensors.split(x, dim)
        x = Tensor(np.flip(x.cells, dim), x.shape, x.sort)
    return [x]


OPERATIONS: dict[str, Handler] = {
    "stablehlo.constant": constant,
    "stablehlo.iota": iota,
    "stablehlo.broadcast_in_dim": lambda tensors, step, operands: [
        tensors.moved(operands[0], step.dims("broadcast_dimensions"), step.shapes[0])
    ],
    "stablehlo.transpose": transpose,
    "stablehlo.reshape": lambda tensors, step, operands: [tensors.reshape(operands[0], step.shapes[0])],
    "stablehlo.slice": slice_,
    "stablehlo.concatenate": lambda tensors, step, operands: [
        join(tensors, operands, step.dims("dimension")[0])
    ],
    "stablehlo.pad": pad,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.reverse": reverse,
    "stablehlo.bitcast_convert": bitcast,
    **dict.fromkeys(ELEMENTWISE, elementwise),
}
