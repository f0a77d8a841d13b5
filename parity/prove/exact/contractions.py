"""Handlers of operations that sum or pick along dimensions: products, reductions, rows of a table."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from parity.ir.mlir import numbers
from parity.ir.stablehlo.program import combiner
from parity.prove.exact.contents import Step
from parity.prove.exact.operations import Handler, is_extreme, join, part, signed_index
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import REAL, RefusalError

ROLES = ("batching", "lhs", "rhs", "contracting")


def dot_roles(step: Step, operands: Sequence[Tensor]) -> list[list[tuple[str, int]]]:
    """Returns a name for each dimension of both operands of a product, of `ROLES` and numbered; equal names are one."""
    text, roles = step.text("dot_dimension_numbers"), []
    for side, x in zip(("lhs", "rhs"), operands, strict=True):
        names: dict[int, tuple[str, int]] = {}
        for kind in ("batching", "contracting"):
            dims = numbers(text, f"{side}_{kind}_dimensions")
            names |= {dim: (kind, place) for place, dim in enumerate(dims)}
        free = [dim for dim in range(len(x.shape)) if dim not in names]
        names |= {dim: (side, place) for place, dim in enumerate(free)}
        roles.append([names[dim] for dim in range(len(x.shape))])
    return roles


def dot_general(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a contraction as the sum of products over the contracting dimensions; rows are summed separately."""
    if step.sorts[0] != REAL or any(x.sort != REAL for x in operands):
        raise RefusalError("dot_general: got integers, expected real numbers")
    roles = dot_roles(step, operands)
    sizes = {}
    for names, x in zip(roles, operands, strict=True):
        sizes |= dict(zip(names, x.shape, strict=True))
    order = sorted(sizes, key=lambda name: (ROLES.index(name[0]), name[1]))
    shape = [sizes[name] for name in order]
    placed = [
        tensors.moved(x, [order.index(name) for name in names], shape)
        for names, x in zip(roles, operands, strict=True)
    ]
    return [_contract(tensors, placed, len(step.shapes[0]))]


def _contract(tensors: Tensors, placed: Sequence[Tensor], kept: int) -> Tensor:
    """Returns the sum of products over the dimensions from ``kept`` on."""
    algebra, shape = tensors.algebra, placed[0].shape
    grids = tensors.grids(placed)
    extents = grids[0].shape
    axes = [(dim, shape[dim]) for dim in range(kept, len(shape)) if extents[dim] == 1 and shape[dim] > 1]
    pairs = [grid.reshape(math.prod(extents[:kept]), -1).tolist() for grid in grids]
    rows = [
        algebra.total(
            (1, algebra.sum_over(algebra.product(pair), axes)) for pair in zip(left, right, strict=True)
        )
        for left, right in zip(*pairs, strict=True)
    ]
    return Tensor(np.array(rows, np.int64).reshape(extents[:kept]), shape[:kept], REAL)


def reducer(step: Step) -> str:
    """Returns the only operation of a reduction's body."""
    name = combiner(step.op.regions[0]).partition(".")[2]
    if name not in ("add", "maximum", "minimum", "and", "or", "multiply"):
        raise RefusalError(
            f"reduction: got {name or 'other than one operation'}, expected one that commutes with itself"
        )
    return name


def reduce(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a sum, extreme or conjunction over dimensions; over split dimensions cell by cell."""
    if len(operands) != 2:
        raise RefusalError("reduce: got several operands at once, expected one")
    x, start = operands
    name, dims, sort = reducer(step), step.dims("dimensions"), x.sort
    combine, along = _reduction(tensors, name, sort)
    axes = [(dim, x.shape[dim]) for dim in dims if not x.is_split(dim) and x.shape[dim] > 1]
    inner = tensors.map_cells(lambda cell: along(cell, axes), x.cells) if axes else x.cells
    order = [dim for dim in range(len(x.shape)) if dim not in dims] + list(dims)
    kept = len(x.shape) - len(dims)
    moved = inner.transpose(order)
    extents = moved.shape[:kept]
    rows = moved.reshape(math.prod(extents), -1).tolist()
    cells = np.array([combine([start.only, *row]) for row in rows], np.int64).reshape(extents)
    names = {dim: place for place, dim in enumerate(order[:kept])}
    relabelled = tensors.map_cells(lambda cell: tensors.terms.relabel(cell, names), cells)
    return [Tensor(relabelled, step.shapes[0], sort)]


def _reduction(tensors: Tensors, name: str, sort: str) -> tuple[Callable, Callable]:
    """Returns the functions that combine cells, and that reduce one cell along its axes."""
    algebra, terms = tensors.algebra, tensors.terms
    if sort == REAL and name == "add":
        return lambda cells: algebra.total((1, cell) for cell in cells), algebra.sum_over
    if is_extreme(name, sort):
        return (
            lambda cells: algebra.extreme(name, cells, sort),
            lambda cell, axes: algebra.extreme_over(name, cell, [label for label, _ in axes], sort),
        )

    def along(cell: int, axes: Sequence) -> int:
        missing = [size for label, size in axes if label not in terms.labels(cell)]
        labels = [label for label, _ in axes if label in terms.labels(cell)]
        return terms.make("fold", (name, tuple(missing)), [cell], sort, ends=set(labels))

    neutral = {"add": 0, "multiply": 1}.get(name)

    def combine(cells: Sequence[int]) -> int:
        if sort == REAL:
            return algebra.product(cells)
        if neutral is not None:
            cells = [cell for cell in cells if algebra.literal(cell) != neutral] or cells[:1]
        return functools.reduce(lambda a, b: algebra.map(name, [a, b], sort), cells)

    return combine, along


def gather(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns rows of a table, one for each index; batch dimensions have a table for each place."""
    text, (table, indices) = step.text("dimension_numbers"), operands
    last = len(indices.shape) - 1
    batch = [numbers(text, f"{name}_batching_dims") for name in ("operand", "start_indices")]
    offsets = [dim for dim in range(len(table.shape)) if dim not in batch[0]]
    taken = numbers(text, "collapsed_slice_dims")
    sizes = [1 if dim in (*batch[0], *taken) else size for dim, size in enumerate(table.shape)]
    plain = (
        taken == numbers(text, "start_index_map") == tuple(offsets[:1])
        and f"index_vector_dim = {last}" in text
        and indices.shape[last] == 1
        and step.dims("slice_sizes") == tuple(sizes)
        and numbers(text, "offset_dims") == tuple(range(last, last + len(offsets) - 1))
    )
    if not plain:
        raise RefusalError(f"gather: got {text}, expected rows of a table")
    shape = step.shapes[0]
    index = tensors.reshape(indices, indices.shape[:-1])
    index = tensors.moved(index, list(range(last)), shape)
    places = dict(zip(batch[0], batch[1], strict=True))
    places |= {dim: last + number for number, dim in enumerate(offsets[1:])} | {offsets[0]: len(shape)}
    size, label = table.shape[offsets[0]], len(shape)
    rows = tensors.moved(table, [places[dim] for dim in range(len(table.shape))], (*shape, size))
    if rows.is_split(label):
        raise RefusalError("gather: got a table whose rows are taken apart")
    rows = Tensor(rows.cells[..., 0], shape, table.sort)

    def take(cell: int, at: int) -> int:
        literal = tensors.algebra.literal(at)
        if label not in tensors.terms.labels(cell):
            return cell
        if isinstance(literal, int):
            return tensors.pieces.at(cell, label, min(max(signed_index(literal, indices.sort), 0), size - 1))
        return tensors.terms.make("take", size, [cell, at], table.sort, ends=[label])

    return [tensors.zip_cells(take, [rows, index], table.sort)]


def scatter(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a table with a row added for each index; batch dimensions in front have a table for each place."""
    if len(operands) != 3 or reducer(step) != "add" or operands[0].sort != REAL:
        raise RefusalError("scatter: got another update than a sum of reals")
    table, indices, updates = operands
    text = step.text("scatter_dimension_numbers")
    last = len(indices.shape) - 1
    batch = numbers(text, "input_batching_dims")
    front = len(batch)
    plain = (
        numbers(text, "inserted_window_dims") == numbers(text, "scatter_dims_to_operand_dims") == (front,)
        and batch == numbers(text, "scatter_indices_batching_dims") == tuple(range(front))
        and f"index_vector_dim = {last}" in text
        and indices.shape[last] == 1
        and numbers(text, "update_window_dims") == tuple(range(last, last + len(table.shape) - 1 - front))
        and updates.shape[last:] == table.shape[1 + front :]
    )
    if not plain or table.is_split(front):
        raise RefusalError(f"scatter: got {text}, expected rows added to a table")
    index = tensors.reshape(indices, indices.shape[:-1])
    shape, tables = table.shape, math.prod(table.shape[:front])
    given = [tensors.reshape(x, (tables, *x.shape[front:])) for x in (table, index, updates)]
    made = [_added(tensors, *[part(tensors, x, 0, place) for x in given]) for place in range(tables)]
    return [tensors.reshape(join(tensors, [tensors.reshape(x, (1, *x.shape)) for x in made], 0), shape)]


def _added(tensors: Tensors, table: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """Returns a table with a row added for each index."""
    last = len(index.shape)
    algebra, terms = tensors.algebra, tensors.terms
    shape = updates.shape
    index = tensors.moved(index, list(range(last)), shape)
    for dim in range(1, len(table.shape)):
        if table.is_split(dim):
            updates = tensors.split(updates, last + dim - 1)
    grids = tensors.grids([updates, index])
    front = [(dim, shape[dim]) for dim in range(last) if grids[0].shape[dim] == 1 and shape[dim] > 1]
    names = {dim: ("row", dim) for dim in range(last)} | {
        dim: dim - last + 1 for dim in range(last, len(shape))
    }

    def put(update: int, at: int) -> int:
        factor, rest = algebra.content(update)
        if factor == 0:
            return algebra.zero
        cells = [terms.relabel(cell, names) for cell in (rest, at)]
        held = {label for cell in cells for label in terms.labels(cell)}
        times = math.prod(size for dim, size in front if ("row", dim) not in held)
        rows, count = [("row", dim) for dim, _ in front], table.shape[0]
        made = terms.make("put", count, cells, ends=set(rows), fresh=[(0, count)])
        return algebra.total([(factor * times, made)])

    extents = (1, *grids[0].shape[last:])
    added = [grid.reshape(-1, math.prod(extents)).T.tolist() for grid in grids]
    starts = np.broadcast_to(table.cells, extents).ravel().tolist()
    cells = [
        algebra.total((1, cell) for cell in (start, *map(put, *rows)))
        for start, *rows in zip(starts, *added, strict=True)
    ]
    return Tensor(np.array(cells, np.int64).reshape(extents), table.shape, REAL)


CONTRACTIONS: dict[str, Handler] = {
    "stablehlo.dot_general": dot_general,
    "stablehlo.reduce": reduce,
    "stablehlo.gather": gather,
    "stablehlo.scatter": scatter,
}
