"""Handlers of StableHLO operations on floats that round: movement is resolved, all else is a function of whole arrays.

A row of a product is one index of the product, never a product of rows: in another shape the same sums may be added in
another order.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from parity.ir.jax_internals import ir
from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.prove.exact import contractions, operations
from parity.prove.exact.contents import SHARDING, Block, Step
from parity.prove.exact.interpreter import REALS, Arithmetic
from parity.prove.exact.operations import OPERATIONS, Handler
from parity.prove.exact.pieces import Data
from parity.prove.exact.rounding import Rounding, is_float, sort_of
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import Label, RefusalError

__all__ = ["BITS", "NUMBERS"]

PIECE = ("piece",)


def attributes(step: Step, but: str = "") -> str:
    """Returns the attributes of an operation as text, except shardings and the attribute ``but``.

    Raises:
        RefusalError: an attribute refers to data outside the operation.
    """
    texts = (
        f"{name} = {value}" for name, value in sorted(step.attributes.items()) if name not in (SHARDING, but)
    )
    text = ", ".join(texts)
    if "dense_resource" in text or "@" in text:
        raise RefusalError(f"{step.name}: got {text}, expected attributes that say all by themselves")
    return text


def body(block: Block, outer: Mapping[int, int] | None = None) -> Hashable:
    """Returns the computation of a region, by names, attributes and places of its operations.

    Raises:
        RefusalError: it reads values from outside the operation.
    """
    numbers = dict(outer or {})
    numbers.update({slot: len(numbers) + place for place, slot in enumerate(block.parameters)})
    rows = []
    for step in block.steps:
        if not set(step.operands) <= set(numbers):
            raise RefusalError(f"{step.name}: got a region that reads values from around it")
        read = tuple(numbers[slot] for slot in step.operands)
        inner = tuple(body(each, numbers) for each in step.blocks)
        rows.append((step.name, attributes(step), read, step.shapes, step.sorts, inner))
        numbers.update({slot: len(numbers) + place for place, slot in enumerate(step.results)})
    if not set(block.outputs) <= set(numbers):
        raise RefusalError("got a region that returns values from around it")
    return tuple(rows), tuple(numbers[slot] for slot in block.outputs), len(block.parameters)


def whole(tensors: Tensors, x: Tensor) -> int:
    """Returns the single cell of a tensor after joining the dimensions that are split."""
    for dim in reversed(range(len(x.shape))):
        if x.is_split(dim):
            rows = np.moveaxis(x.cells, dim, -1)
            joined = [
                tensors.pieces.join([(cell, 1) for cell in row], dim, dim)
                for row in rows.reshape(-1, x.shape[dim]).tolist()
            ]
            cells = np.expand_dims(np.array(joined, np.int64).reshape(rows.shape[:-1]), dim)
            x = Tensor(cells, x.shape, x.sort)
    return x.only


def algebra_of(tensors: Tensors) -> Rounding:
    """Returns the algebra of tensors of floats that round."""
    assert isinstance(tensors.algebra, Rounding)
    return tensors.algebra


def placed(tensors: Tensors, x: Tensor, names: Sequence[Label]) -> tuple[int, dict[Label, bool]]:
    """Returns the cell of a tensor labelled by ``names``, and for each name whether the cell depends on it."""
    cell = whole(tensors, x)
    held = tensors.terms.labels(cell)
    moved = tensors.terms.relabel(cell, {dim: names[dim] for dim in held})
    return moved, {names[dim]: dim in held for dim in range(len(x.shape))}


def operation(
    tensors: Tensors,
    step: Step,
    operands: Sequence[Tensor],
    roles: Sequence[Sequence[Label]] | None = None,
    more: Hashable = None,
) -> list[Tensor]:
    """Returns an operation as an opaque function of its whole operands.

    Args:
        tensors: the cache.
        step: the operation.
        operands: of it.
        roles: names of the dimensions of each operand; the key orders them by name.
        more: key of the operation; by default its attributes and regions.
    """
    algebra = algebra_of(tensors)
    if roles is None:
        roles = [[(place, dim) for dim in range(len(x.shape))] for place, x in enumerate(operands)]
        more = step.remember("whole", lambda: (attributes(step), tuple(body(each) for each in step.blocks)))
    cells, sizes, held = [], {}, {}
    for x, names in zip(operands, roles, strict=True):
        cell, depends = placed(tensors, x, names)
        cells.append(cell)
        sizes |= dict(zip(names, x.shape, strict=True))
        held |= {name: held.get(name, False) or depends[name] for name in names}
    order = sorted(sizes)
    key = (more, tuple((name, sizes[name]) for name in order), tuple(x.sort for x in operands))
    labels = [name if held[name] else None for name in order]
    return [
        tensors.uniform(algebra.opaque(step.name, (key, slot), cells, labels, shape, sort), shape, sort)
        for slot, (shape, sort) in enumerate(zip(step.shapes, step.sorts, strict=True))
    ]


def dot_general(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a product of whole arrays, keyed by the roles of dimensions: their layout changes no sum."""
    text = step.text("dot_dimension_numbers")
    roles = []
    for side, x in zip(("lhs", "rhs"), operands, strict=True):
        names: dict[int, Label] = {}
        for kind in ("batching", "contracting"):
            dims = contractions.numbers(text, f"{side}_{kind}_dimensions")
            names |= {dim: (kind, place) for place, dim in enumerate(dims)}
        free = [dim for dim in range(len(x.shape)) if dim not in names]
        names |= {dim: (side, place) for place, dim in enumerate(free)}
        roles.append([names[dim] for dim in range(len(x.shape))])
    more = step.remember("rest", lambda: attributes(step, "dot_dimension_numbers"))
    return operation(tensors, step, operands, roles, ("by role", more))


def reduce(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a reduction of whole arrays, keyed by the kept dimensions; integers and booleans as in `contractions`."""
    if not any(is_float(x.sort) for x in operands):
        try:
            return contractions.reduce(tensors, step, operands)
        except RefusalError:
            return operation(tensors, step, operands)
    gone, inputs = step.dims("dimensions"), operands[: len(operands) // 2]
    kept = [dim for dim in range(len(inputs[0].shape)) if dim not in gone]
    names: list[Label] = [
        ("gone", sorted(gone).index(dim)) if dim in gone else ("kept", kept.index(dim))
        for dim in range(len(inputs[0].shape))
    ]
    more = step.remember(
        "rest", lambda: (attributes(step, "dimensions"), tuple(body(each) for each in step.blocks))
    )
    roles = [names] * len(inputs) + [[]] * len(inputs)
    return operation(tensors, step, operands, roles, ("by role", more))


def elementwise(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Applies an operation place by place; for floats, all its attributes are part of the function."""
    if not any(map(is_float, (*step.sorts, *(x.sort for x in operands)))):
        return operations.elementwise(tensors, step, operands)
    name, (sort,) = facts(step.name).short, step.sorts
    step.remember(
        "function",
        lambda: (_function(tensors, name, sort, attributes(step)), operations.function_key(step)),
    )
    return operations.elementwise(tensors, step, operands)


def _function(tensors: Tensors, name: str, sort: str, detail: str) -> Any:
    algebra = algebra_of(tensors)
    plain = lambda *cells: algebra.map(name, cells, sort, detail or None)  # noqa: E731
    if name != "add" or not algebra.zeros:
        return plain

    def add(a: int, b: int) -> int:
        """Adds piece by piece if pieces are zero, as padding is."""
        label = next((label for cell in (a, b) if (label := algebra.padded(cell)) is not None), None)
        if label is None:
            return plain(a, b)
        pieces, parts, start = tensors.pieces, [], 0
        ends = {end for cell in (a, b) for end in algebra.ends(cell, label)}
        for end in sorted(ends):
            cut = [pieces.cut(cell, label, (start, end, 1), PIECE) for cell in (a, b)]
            parts.append((add(*cut), end - start))
            start = end
        return pieces.join(parts, PIECE, label)

    return add


def constant(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a constant: for floats one element for all, or data that is read when an index is needed.

    Raises:
        RefusalError: its elements cannot be read.
    """
    (shape,), (sort,), value = step.shapes, step.sorts, step.attributes["value"]
    if not is_float(sort):
        return OPERATIONS["stablehlo.constant"](tensors, step, operands)
    if not isinstance(value, ir.DenseElementsAttr):
        raise RefusalError(f"constant: got {type(value).__name__} of {sort}, expected elements")
    if value.is_splat:
        try:
            number = cast(Any, value.get_splat_value()).value
        except (AttributeError, TypeError) as error:
            raise RefusalError(f"constant: {error}") from error
        known = str(value).partition(" : ")[0] if number != number else number
        return [tensors.uniform(algebra_of(tensors).element(known, sort), shape, sort)]
    data: Data = step.remember("data", lambda: Data.of(value, shape))
    if np.dtype(data.dtype) != {"f16": np.float16, "f32": np.float32, "f64": np.float64}.get(sort):
        raise RefusalError(f"constant: got elements of {sort} as {data.dtype}, expected those that NumPy has")
    axes = [(dim, size) for dim, size in enumerate(shape) if size > 1]
    return [tensors.uniform(tensors.pieces.data(data, axes, sort), shape, sort)]


def iota(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the index along a dimension; for floats as an opaque row."""
    (shape,), (sort,), (dim,) = step.shapes, step.sorts, step.dims("iota_dimension")
    if not is_float(sort):
        return OPERATIONS["stablehlo.iota"](tensors, step, operands)
    row = algebra_of(tensors).opaque("iota of floats", (), (), (), (shape[dim],), sort)
    return [tensors.moved(tensors.uniform(row, (shape[dim],), sort), (dim,), shape)]


def moving(handler: Handler) -> Handler:
    """Returns a handler that resolves movement if it is known, and else keeps the operation opaque."""

    def move(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
        try:
            return handler(tensors, step, operands)
        except RefusalError:
            return operation(tensors, step, operands)

    return move


def gather(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns rows of a table; a promised order of the indices makes the operation opaque."""
    promised = step.text("indices_are_sorted") == "true"
    return operation(tensors, step, operands) if promised else _rows(tensors, step, operands)


_rows = moving(contractions.gather)
MOVES = names_of(Group.REARRANGES, Group.PICKS, Group.JOINS, "bitcast_convert")
BITS = Arithmetic(
    algebra=Rounding,
    handlers={
        **dict.fromkeys(names_of(Group.WHOLE), operation),
        **{name: moving(REALS.handlers[name]) for name in MOVES},
        **dict.fromkeys(names_of(Group.ELEMENTWISE), elementwise),
        "stablehlo.constant": constant,
        "stablehlo.iota": iota,
        "stablehlo.dot_general": dot_general,
        "stablehlo.reduce": reduce,
        "stablehlo.gather": gather,
        "stablehlo.optimization_barrier": OPERATIONS["stablehlo.optimization_barrier"],
    },
    sort_of=sort_of,
)
"""Arithmetic of floats on machines: every operation rounds separately."""
NUMBERS = dataclasses.replace(BITS, algebra=functools.partial(Rounding, zeros=True))
"""`BITS` up to the sign of zero: a sum with zero is no operation."""
