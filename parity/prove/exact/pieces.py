"""Parts of terms along an axis: one index, a slice, a join, another shape. Inverses cancel."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.prove.exact.algebra import Algebra
from parity.prove.exact.terms import Axis, Label, Referring, RefusalError

__all__ = ["Data", "Pieces"]

DEEPEST = 200
"""Maximum depth of nested functions into which a reshape is moved."""


@dataclasses.dataclass(frozen=True)
class Data:
    """The elements of a constant that is not uniform, read when needed; constants are equal if their bytes are."""

    raw: bytes
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, attribute: Any, shape: tuple[int, ...]) -> "Data":
        """Returns the elements of a constant.

        Raises:
            RefusalError: they cannot be read.
        """
        try:
            array = np.array(attribute)
        except (ValueError, TypeError, RuntimeError) as error:
            raise RefusalError(f"constant: {error}") from error
        return cls(array.tobytes(), array.dtype.str, shape)

    def at(self, axis: int, index: int) -> "Data":
        """Returns the part at one index of an axis."""
        array = np.frombuffer(self.raw, self.dtype).reshape(self.shape).take(index, axis)
        return Data(array.tobytes(), self.dtype, array.shape)

    def item(self) -> float | int | bool:
        """Returns the element of a scalar."""
        return np.frombuffer(self.raw, self.dtype)[0].item()


class Pieces:
    """Splits terms and joins them.

    Args:
        algebra: rebuilds terms whose arguments were split.
    """

    def __init__(self, algebra: Algebra):
        self.algebra, self.terms = algebra, algebra.terms
        self._known: dict[tuple[int, Label, int], int] = {}
        self._reshaped: dict[tuple, int] = {}

    def at(self, cell: int, label: Label, index: int) -> int:
        """Returns the cell at one index along a label; only nodes at which the axis begins need a rule for it."""
        if label not in self.terms.labels(cell):
            return cell
        known = self._known.get((cell, label, index))
        if known is None:
            before, self.terms.origin = self.terms.origin, self.terms.origins[self.terms.term(cell)]
            known = self._known[cell, label, index] = self._at(cell, label, index)
            self.terms.origin = before
        return known

    def _at(self, cell: int, label: Label, index: int) -> int:
        fresh = self.terms.fresh(cell)
        if label in dict(fresh):
            return self._begun(cell, label, index, [name for name, _ in fresh].index(label))
        node, args, names = self.terms.open(cell)
        return self.algebra.rebuild(node, [self.at(arg, label, index) for arg in args], names, fresh)

    def _begun(self, cell: int, label: Label, index: int, place: int) -> int:
        """Returns the cell at one index if the axis begins at the node of the cell."""
        node = self.terms.node(cell)
        if node.kind == "iota":
            return self.algebra.constant(index, node.sort)
        if node.kind == "data":
            data: Data = node.params
            axis = [axis for axis, size in enumerate(data.shape) if size > 1][place]
            axes = [axis for axis in self.terms.fresh(cell) if axis[0] != label]
            return self.data(data.at(axis, index), axes, node.sort)
        if node.kind == "concat":
            for arg, size, inner in self.parts(cell):
                if index < size:
                    return self.at(arg, inner, index)
                index -= size
        if node.kind == "slice":
            (start, _, stride), (ref,) = node.params
            _, args, names = self.terms.open(cell)
            return self.at(args[0], names[ref], start + index * stride)
        return self.algebra.pick(cell, label, index)

    def parts(self, cell: int) -> list[tuple[int, int, Label]]:
        """Returns the parts of a concatenation with their lengths and labels there; None for a uniform part."""
        node, args, names = self.terms.open(cell)
        sizes, refs = node.params
        labels = [None if ref is None else names[ref] for ref in refs]
        return list(zip(args, sizes, labels, strict=True))

    def data(self, data: Data, axes: Sequence[Axis], sort: str) -> int:
        """Returns the cell of a constant; ``axes`` are the axes longer than one."""
        if axes:
            return self.terms.leaf("data", data, axes, sort)
        return self.algebra.element(data.item(), sort)

    def cut(self, cell: int, label: Label, bounds: tuple[int, int, int], to: Label) -> int:
        """Returns the part ``start, stop, stride`` along a label, which becomes ``to``."""
        if label not in self.terms.labels(cell):
            return cell
        start, stop, stride = bounds
        size = self.terms.sizes(cell)[label]
        length = -(-(stop - start) // stride)
        if length == 1:
            return self.at(cell, label, start)
        if length == size:
            return self.terms.relabel(cell, {label: to})
        node, args, names = self.terms.open(cell)
        if label in dict(self.terms.fresh(cell)):
            if node.kind == "slice":
                (first, _, step), (ref,) = node.params
                inner = (first + start * step, first + (stop - 1) * step + 1, step * stride)
                return self.cut(args[0], names[ref], inner, to)
            if node.kind == "concat" and stride == 1:
                return self._cut_join(cell, bounds, to)
            if node.kind == "reshape" and stride == 1:
                part = self._cut_merged(cell, bounds, to)
                if part is not None:
                    return part
        return self.terms.make(
            "slice",
            Referring((start, start + (length - 1) * stride + 1, stride), (label,)),
            [cell],
            node.sort,
            bound=[label],
            fresh=[(to, length)],
        )

    def _cut_join(self, cell: int, bounds: tuple[int, int, int], to: Label) -> int:
        parts: list[tuple[int, int]] = []
        begin, (start, stop, _) = 0, bounds
        for arg, size, inner in self.parts(cell):
            first, last = max(start - begin, 0), min(stop - begin, size)
            if first < last:
                parts.append((self.cut(arg, inner, (first, last, 1), ("piece",)), last - first))
            begin += size
        return self.join(parts, ("piece",), to)

    def _cut_merged(self, cell: int, bounds: tuple[int, int, int], to: Label) -> int | None:
        """Returns whole outermost rows of an axis that a reshape merged from several; None for any other part."""
        node, (base,), names = self.terms.open(cell)
        (before, after), refs = node.params
        inner, (start, stop, _) = math.prod(before[1:]), bounds
        if len(after) != 1 or None in refs or start % inner or stop % inner:
            return None
        first, *rest = [(names[ref], size) for ref, size in zip(refs, before, strict=True)]
        rows = (stop - start) // inner
        part = self.cut(base, first[0], (start // inner, stop // inner, 1), ("rows",))
        left = [*([(("rows",), rows)] if rows > 1 else []), *rest]
        if len(left) == 1:
            return self.terms.relabel(part, {left[0][0]: to})
        return self.reshape(part, left, [(to, stop - start)])

    def join(self, parts: Sequence[tuple[int, int]], label: Label, to: Label) -> int:
        """Returns the concatenation of cells along a label.

        Args:
            parts: cells and their lengths; a cell without the label is uniform along it.
            label: the label of the joined axis in the parts.
            to: the label of the joined axis in the result.
        """
        flat: list[tuple[int, int]] = []
        for whole, length in parts:
            for cell, size in self._parts(whole, length, label):
                joined = self._meet(flat[-1][0], cell, label) if flat else None
                if joined is None:
                    flat.append((cell, size))
                else:
                    flat[-1] = (joined, flat[-1][1] + size)
        if len(flat) == 1:
            return self.terms.relabel(flat[0][0], {label: to})
        cells, refs = [], []
        for place, (cell, _) in enumerate(flat):
            has = label in self.terms.labels(cell)
            cells.append(self.terms.relabel(cell, {label: ("part", place)}) if has else cell)
            refs.append(("part", place) if has else None)
        sizes = tuple(size for _, size in flat)
        bound = [ref for ref in refs if ref is not None]
        sort = self.terms.node(cells[0]).sort
        return self.terms.make(
            "concat", Referring(sizes, tuple(refs)), cells, sort, bound=bound, fresh=[(to, sum(sizes))]
        )

    def ends(self, cell: int, label: Label) -> list[int]:
        """Returns the ends of the parts of a cell along a label; empty if it is uniform."""
        sizes = self.terms.sizes(cell)
        if label not in sizes:
            return []
        return list(itertools.accumulate(size for _, size in self._parts(cell, sizes[label], label)))

    def _parts(self, cell: int, size: int, label: Label) -> list[tuple[int, int]]:
        if self.terms.node(cell).kind != "concat" or label not in dict(self.terms.fresh(cell)):
            return [(cell, size)]
        return [(self.terms.relabel(arg, {inner: label}), part) for arg, part, inner in self.parts(cell)]

    def _meet(self, left: int, right: int, label: Label) -> int | None:
        """Returns neighbours as one cell if they are one uniform cell, or contiguous slices; else None."""
        if left == right and label not in self.terms.labels(left):
            return left
        first, second = self._slice(left, label), self._slice(right, label)
        if first is None or second is None or first[:2] != second[:2] or first[3] != second[2]:
            return None
        base, inner, start, _ = first
        return self.cut(base, inner, (start, second[3], 1), label)

    def _slice(self, cell: int, label: Label) -> tuple[int, Label, int, int] | None:
        """Returns (base, label there, start, stop) if a cell is a slice or an index along a label; else None."""
        node = self.terms.node(cell)
        if node.kind == "at" and label not in self.terms.labels(cell):
            _, (base,), names = self.terms.open(cell)
            index, (ref,) = node.params
            return base, names[ref], index, index + 1
        if node.kind != "slice" or label not in dict(self.terms.fresh(cell)):
            return None
        _, (base,), names = self.terms.open(cell)
        (start, stop, stride), (ref,) = node.params
        return (base, names[ref], start, stop) if stride == 1 else None

    def reshape(self, cell: int, before: Sequence[Axis], after: Sequence[Axis], depth: int = 0) -> int:
        """Returns a cell whose axes ``before``, together in row-major order, are replaced by ``after``.

        Args:
            cell: the cell.
            before, after: labels and lengths.
            depth: number of enclosing functions of elements.
        """
        terms = self.terms
        labels = terms.labels(cell)
        present = [label for label, _ in before if label in labels]
        if not present:
            return cell
        node, fresh = terms.node(cell), terms.fresh(cell)
        if node.kind == "reshape" and [axis for axis in before if axis[1] > 1] == fresh:
            _, (base,), names = terms.open(cell)
            (sizes, _), refs = node.params
            inner = [
                (("absent", place) if ref is None else names[ref], size)
                for place, (ref, size) in enumerate(zip(refs, sizes, strict=True))
            ]
            if [size for _, size in inner] == [size for _, size in after]:
                pairs = zip(inner, after, strict=True)
                return terms.relabel(base, {old: new for (old, _), (new, _) in pairs})
            return self.reshape(base, inner, after)
        if node.kind == "map" and self.algebra.past_reshape and depth < DEEPEST:
            key = (cell, tuple(before), tuple(after))  # computed once, because layers share operands
            if key not in self._reshaped:
                node, args, names = terms.open(cell)
                moved = [self.reshape(arg, before, after, depth + 1) for arg in args]
                self._reshaped[key] = self.algebra.rebuild(node, moved, names, ())
            return self._reshaped[key]
        sizes = (tuple(size for _, size in before), tuple(size for _, size in after))
        refs = tuple(label if label in labels else None for label, _ in before)
        return terms.make("reshape", Referring(sizes, refs), [cell], node.sort, bound=present, fresh=after)
