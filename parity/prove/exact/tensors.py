"""Tensors as arrays of cells over the dimensions that are split; the others are axes of the cells."""

import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parity.prove.exact.algebra import Algebra
from parity.prove.exact.pieces import Pieces
from parity.prove.exact.terms import Axis, RefusalError

MOST_PARTS = 4_096
"""Longest dimension that is split."""
LARGE = 4_096
"""Largest tensor, in cells, for which equal tensors are shared."""


class Floats(enum.IntEnum):
    """Relation between the floats of a program and the real numbers of a tensor.

    Attributes:
        ROUNDED: they differ by rounding only.
        SIGN: neither is negative.
        EXACT: they are equal.
    """

    ROUNDED = 0
    SIGN = 1
    EXACT = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor:
    """A value of the program.

    Args:
        cells: numbers of cells; as long as ``shape`` along a split dimension, else of length one: then the dimension is
            an axis of each cell, with the dimension's number as its label, or the cell is uniform along it.
        floats: relation of a program's floats to these numbers.
    """

    cells: np.ndarray
    shape: tuple[int, ...]
    sort: str
    floats: Floats = Floats.ROUNDED

    @property
    def only(self) -> int:
        """The cell of a tensor that is not split."""
        return self.cells.item()

    def is_split(self, dim: int) -> bool:
        """True if a dimension longer than one is split."""
        return self.cells.shape[dim] != 1


class Tensors:
    """Operates on tensors cell by cell; keeps the results of steps, by their content and operands."""

    def __init__(self, algebra: Algebra):
        self.algebra, self.terms = algebra, algebra.terms
        self.pieces = Pieces(algebra)
        self.results: dict[tuple, Any] = {}
        self._equal: dict[tuple, Tensor] = {}

    def one(self, x: Tensor) -> Tensor:
        """Returns the canonical one of all equal tensors, so that identity means equality."""
        if x.cells.size > LARGE:
            return x
        key = (
            x.shape,
            x.sort,
            x.floats,
            x.cells.item() if x.cells.size == 1 else (x.cells.shape, x.cells.tobytes()),
        )
        return self._equal.setdefault(key, x)

    def uniform(self, cell: int, shape: Sequence[int], sort: str) -> Tensor:
        """Returns a tensor that consists of one cell."""
        return Tensor(np.full((1,) * len(shape), cell, np.int64), tuple(shape), sort)

    @staticmethod
    def map_cells(function: Callable[[int], int], cells: np.ndarray) -> np.ndarray:
        """Returns the results of a function on cells, computed once for equal cells."""
        flat = cells.ravel().tolist()
        made = {cell: function(cell) for cell in dict.fromkeys(flat)}
        return np.array([made[cell] for cell in flat], np.int64).reshape(cells.shape)

    def has(self, x: Tensor, dim: int) -> bool:
        """True if a dimension is an axis of any cell."""
        return not x.is_split(dim) and any(
            dim in self.terms.labels(cell) for cell in set(x.cells.ravel().tolist())
        )

    def split(self, x: Tensor, dim: int) -> Tensor:
        """Returns the tensor with a dimension split, so that each index has separate cells."""
        size = x.shape[dim]
        if size == 1 or x.is_split(dim):
            return x
        if size > MOST_PARTS:
            raise RefusalError(f"got a dimension of {size} to take apart, expected at most {MOST_PARTS}")
        if not self.has(x, dim):
            return dataclasses.replace(x, cells=np.repeat(x.cells, size, dim))
        parts = [
            self.map_cells(lambda cell, index=index: self.pieces.at(cell, dim, index), x.cells)
            for index in range(size)
        ]
        return dataclasses.replace(x, cells=np.concatenate(parts, dim))

    def grids(self, tensors: Sequence[Tensor]) -> list[np.ndarray]:
        """Returns the cells of tensors of one shape, as arrays of one shape: split where any tensor is split."""
        out = list(tensors)
        for dim in range(len(out[0].shape)):
            if any(x.is_split(dim) for x in out):
                out = [self.split(x, dim) if self.has(x, dim) else x for x in out]
        return list(np.broadcast_arrays(*[x.cells for x in out]))

    def zip_cells(self, function: Callable[..., int], tensors: Sequence[Tensor], sort: str) -> Tensor:
        """Returns the results of a function on the cells of tensors of one shape, computed once for equal cells."""
        grids = self.grids(tensors)
        rows = list(zip(*[grid.ravel().tolist() for grid in grids], strict=True))
        known = {row: function(*row) for row in dict.fromkeys(rows)}
        cells = np.array([known[row] for row in rows], np.int64).reshape(grids[0].shape)
        return Tensor(cells, tensors[0].shape, sort)

    def moved(self, x: Tensor, to: Sequence[int], shape: Sequence[int]) -> Tensor:
        """Returns the tensor with dimension i as dimension ``to[i]`` of ``shape``; the others are uniform.

        A dimension of length one may become longer.
        """
        order = sorted(range(len(to)), key=to.__getitem__)
        lengths = [1] * len(shape)
        for dim, target in enumerate(to):
            lengths[target] = x.cells.shape[dim]
        cells = x.cells.transpose(order).reshape(lengths)
        names = {dim: target for dim, target in enumerate(to) if dim != target}
        if names:
            cells = self.map_cells(lambda cell: self.terms.relabel(cell, names), cells)
        return Tensor(cells, tuple(shape), x.sort)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Returns the tensor in another shape; groups of dimensions with the same elements are reshaped separately."""
        extents = [1] * len(shape)
        names: dict[Any, int] = {("to", dim): dim for dim in range(len(shape))}
        opaque: list[tuple[list[Axis], list[Axis]]] = []
        for before, after in _groups(x.shape, shape):
            if len(before) == len(after) == 1:
                names[before[0]] = after[0]
                extents[after[0]] = x.cells.shape[before[0]]
            elif any(x.is_split(dim) for dim in before):
                for dim in before:
                    x = self.split(x, dim)
                for dim in after:
                    extents[dim] = shape[dim]
            else:
                old: list[Axis] = [(dim, x.shape[dim]) for dim in before]
                opaque.append((old, [(("to", dim), shape[dim]) for dim in after]))

        def reshaped(cell: int) -> int:
            for old, new in opaque:
                cell = self.pieces.reshape(cell, old, new)
            return self.terms.relabel(cell, names)

        return Tensor(self.map_cells(reshaped, x.cells.reshape(extents)), tuple(shape), x.sort)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Returns groups of dimensions longer than one, of both shapes, that hold the same elements."""
    ins = [dim for dim, size in enumerate(before) if size > 1]
    outs = [dim for dim, size in enumerate(after) if size > 1]
    groups = []
    while ins or outs:
        left, right = [ins.pop(0)], [outs.pop(0)]
        while (a := math.prod(before[d] for d in left)) != (b := math.prod(after[d] for d in right)):
            if a < b:
                left.append(ins.pop(0))
            else:
                right.append(outs.pop(0))
        groups.append((left, right))
    return groups
