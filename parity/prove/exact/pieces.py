"""Parts of terms along an axis: one index, a slice, a join, another shape. Inverses cancel."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from parity.prove.exact.algebra import Algebra
from parity.prove.exact.terms import Axis, Label

DEEPEST = 200
"""Maximum depth of nested functions into which a reshape is moved."""
Chosen = dict[Label, tuple[tuple[int, int, int], Label]]
"""Start, length and stride along labels of a cell, and the label that the part has there unless its length is one."""


@dataclasses.dataclass(frozen=True)
class Data:
    """The elements of a constant that is not uniform, read when needed; constants are equal if their bytes are."""

    raw: bytes
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> "Data":
        """Returns an array as data."""
        return cls(array.tobytes(), array.dtype.str, array.shape)

    def at(self, axis: int, index: int) -> "Data":
        """Returns the part at one index of an axis."""
        return Data.of(np.frombuffer(self.raw, self.dtype).reshape(self.shape).take(index, axis))

    def item(self) -> float | int | bool:
        """Returns the element of a scalar."""
        return np.frombuffer(self.raw, self.dtype)[0].item()


class Pieces:
    """Splits terms and joins them; the algebra rebuilds terms whose arguments were split."""

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
        if node.kind == "part":
            base, chosen = self._opened(cell)
            return self._choose(self.at(base, label, index), chosen)
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
        return self._choose(cell, {label: ((index, 1, 1), None)})

    def parts(self, cell: int) -> list[tuple[int, int, Label]]:
        """Returns the parts of a concatenation with their lengths, and the labels that those not uniform have there."""
        node, args, names = self.terms.open(cell)
        return list(zip(args, node.params, names[: node.bound], strict=True))

    def _opened(self, cell: int) -> tuple[int, Chosen]:
        """Returns the cell of which a cell is a part, and the part; the cell itself if it is no part."""
        node, args, names = self.terms.open(cell)
        if node.kind != "part":
            return cell, {}
        fresh = iter(self.terms.fresh(cell))
        return args[0], {
            role: (bounds, next(fresh)[0] if bounds[1] > 1 else None)
            for role, bounds in zip(names, node.params, strict=False)
        }

    def _choose(self, cell: int, chosen: Chosen) -> int:
        """Returns a part of a cell, as one term in the order of its axes; a part of a part is a part of the whole."""
        for label, (bounds, to) in chosen.items():
            if label not in self.terms.labels(cell):
                continue
            base, whole = self._opened(cell)
            inner = next((role for role, (_, out) in whole.items() if out == label), None)
            if inner is not None:
                (first, _, step), _ = whole.pop(inner)
                start, length, stride = first + bounds[0] * step, bounds[1], bounds[2] * step
                within = (start, start + (length - 1) * stride + 1, stride)
                cell = self._choose(self.cut(base, inner, within, to), whole)
                continue
            whole[label] = bounds, to
            roles = [role for role in self.terms.labels(base) if role in whole]
            params = tuple([whole[role][0] for role in roles])
            fresh = [(whole[role][1], whole[role][0][1]) for role in roles if whole[role][0][1] > 1]
            sort = self.terms.node(base).sort
            cell = self.terms.make("part", params, [base], sort, ends=roles, fresh=fresh)
        return cell

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
        kind = self.terms.node(cell).kind
        if stride == 1 and kind in ("concat", "reshape") and label in dict(self.terms.fresh(cell)):
            made = (self._cut_join if kind == "concat" else self._cut_merged)(cell, bounds, to)
            if made is not None:
                return made
        return self._choose(cell, {label: ((start, length, stride), to)})

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
        (before, after), labels = node.params, set(self.terms.labels(base))
        inner, (start, stop, _) = math.prod(before[1:]), bounds
        first, *rest = zip(names[: node.bound], before, strict=True)
        if len(after) > 1 or start % inner or stop % inner or not labels.issuperset(names[: node.bound]):
            return None
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
        cells = [self.terms.relabel(cell, {label: ("part", place)}) for place, (cell, _) in enumerate(flat)]
        sizes, roles = tuple(size for _, size in flat), [("part", place) for place in range(len(flat))]
        sort = self.terms.node(cells[0]).sort
        return self.terms.make("concat", sizes, cells, sort, ends=roles, fresh=[(to, sum(sizes))])

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
        (base, first), (other, second) = self._opened(left), self._opened(right)
        unlike = [role for role in first if first[role] != second.get(role)]
        if base != other or first.keys() != second.keys() or len(unlike) != 1:
            return None
        sides = ((left, first.pop(unlike[0])), (right, second.pop(unlike[0])))
        if any((label in self.terms.labels(cell)) != (to == label) for cell, (_, to) in sides):
            return None
        ((start, length, stride), _), ((next_start, more, next_stride), _) = [each for _, each in sides]
        if (stride, next_stride, next_start) != (1, 1, start + length):
            return None
        return self._choose(self.cut(base, unlike[0], (start, next_start + more, 1), label), first)

    def reshape(self, cell: int, before: Sequence[Axis], after: Sequence[Axis], depth: int = 0) -> int:
        """Returns a cell whose axes ``before``, together in row-major order, are replaced by ``after``.

        Args:
            before, after: labels and lengths.
            depth: number of enclosing functions of elements.
        """
        terms = self.terms
        labels = set(terms.labels(cell))
        if labels.isdisjoint(label for label, _ in before):
            return cell
        node, fresh = terms.node(cell), terms.fresh(cell)
        if node.kind == "reshape" and [axis for axis in before if axis[1] > 1] == fresh:
            _, (base,), names = terms.open(cell)
            inner = list(zip(names[: node.bound], node.params[0], strict=True))
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
        roles = [label for label, _ in before]
        return terms.make("reshape", sizes, [cell], node.sort, ends=roles, fresh=after)
