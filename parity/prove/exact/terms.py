"""Hash-consed terms: the content of a tensor's cell, as a function of the indices along its axes.

A term has numbered axes; a cell is a term with a label (a dimension of a tensor, or a bound name) for each of them.
Equal numbers mean equal keys, and equal keys mean equal functions of the inputs: no proof relies on hashes.
"""

import functools
import itertools
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from parity.prove.rules.types import is_whole_number

REAL = "real"
"""The sort of all floating-point values: numbers, regardless of their dtype. All other sorts are element types."""

Label = Any  # hashable: a dimension of a tensor, or a name
Axis = tuple[Label, int]


class RefusalError(ValueError):
    """An unsupported construct: nothing is claimed. All that reads a program may raise it.

    Attributes:
        step: the operation; None if there is none.
    """

    step: Any = None


@functools.cache
def sort_of(element: str) -> str:
    """Returns the sort of an element type."""
    # XLA converts the maximum of a float of 4 bits to the maximum integer.
    if re.fullmatch(r"b?f(?!4E)\d+\w*", element):
        return REAL
    if is_whole_number(element):
        return element
    raise RefusalError(f"got elements {element}, expected floats, integers or booleans")


class Node(NamedTuple):
    """A term.

    The axes of its arguments that end here are numbered first, by their roles; a role that no argument has is filled by
    uniform arguments. The others are numbered by first appearance: these are the term's axes, followed by new ones.

    Args:
        kind: such as ``sum`` or ``map``.
        params: content of the term other than its arguments.
        args: for each argument its term, and the number of each of its axes.
        bound: the number of roles, such as one for each axis that is summed over.
        shape: length of each of the term's axes.
        sort: `REAL` or an element type.
    """

    kind: str
    params: Any
    args: tuple[tuple[int, tuple[int, ...]], ...]
    bound: int
    shape: tuple[int, ...]
    sort: str


class Terms:
    """The table that both sides share.

    Attributes:
        nodes: terms by number.
        size: number of the terms and their arguments.
        origins: value of `origin` when each term was first made.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.size = 0
        self.origins: list[Any] = []
        self.origin: Any = None
        self._numbers: dict[Node, int] = {}
        self._cells: list[tuple[int, tuple[Label, ...]]] = []
        self._cell_numbers: dict[tuple[int, tuple[Label, ...]], int] = {}
        self._opened: dict[int, tuple[Node, list[int], list[Label]]] = {}

    def cell(self, term: int, labels: tuple[Label, ...]) -> int:
        """Returns the cell of a term with its axes labelled ``labels``."""
        key = (term, labels)
        number = self._cell_numbers.get(key)
        if number is None:
            number = self._cell_numbers[key] = len(self._cells)
            self._cells.append(key)
        return number

    def term(self, cell: int) -> int:
        """Returns the term of a cell."""
        return self._cells[cell][0]

    def labels(self, cell: int) -> tuple[Label, ...]:
        """Returns the labels of the axes of a cell."""
        return self._cells[cell][1]

    def node(self, cell: int) -> Node:
        """Returns the node of a cell."""
        return self.nodes[self._cells[cell][0]]

    def sizes(self, cell: int) -> dict[Label, int]:
        """Returns the length along each label."""
        term, labels = self._cells[cell]
        return dict(zip(labels, self.nodes[term].shape, strict=True))

    def relabel(self, cell: int, names: Mapping[Any, Label]) -> int:
        """Returns a cell with other labels."""
        term, labels = self._cells[cell]
        return self.cell(term, tuple([names.get(label, label) for label in labels]))

    def leaf(self, kind: str, params: Hashable, axes: Sequence[Axis] = (), sort: str = REAL) -> int:
        """Returns the cell of a term without arguments, with new axes."""
        return self.make(kind, params, (), sort, fresh=axes)

    def make(
        self,
        kind: str,
        params: Hashable,
        cells: Sequence[int],
        sort: str = REAL,
        *,
        ends: Collection[Label] = (),
        fresh: Sequence[Axis] = (),
    ) -> int:
        """Returns the cell of a node with arguments in the given order.

        Args:
            kind, params, sort: as in `Node`.
            cells: the arguments; equal labels are one axis.
            ends: labels that end here, in the order of their roles, or a set if those are equal; None, or a label of no
                argument, leaves a role unfilled.
            fresh: labels and lengths of axes that begin here.
        """
        if isinstance(ends, set):
            ends = dict.fromkeys(label for cell in cells for label in self.labels(cell) if label in ends)
        numbers = {label: number for number, label in enumerate(ends)}
        count, filled = len(ends), len(numbers)
        lengths: list[int] = [0] * count
        args = []
        for cell in cells:
            term, labels = self._cells[cell]
            where = []
            for label, size in zip(labels, self.nodes[term].shape, strict=True):
                number = numbers.get(label)
                if number is None:
                    number = numbers[label] = len(lengths)
                    lengths.append(size)
                elif lengths[number] != size:
                    if lengths[number]:
                        raise AssertionError(
                            f"{kind}: axis {label!r} has lengths {lengths[number]} and {size}"
                        )
                    lengths[number] = size
                where.append(number)
            args.append((term, tuple(where)))
        shape = (*lengths[count:], *[size for _, size in fresh])
        number = self._number(Node(kind, params, tuple(args), count, shape, sort))
        return self.cell(number, (*list(numbers)[filled:], *[label for label, _ in fresh]))

    def _number(self, node: Node) -> int:
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
            self.size += 1 + len(node.args)
            self.origins.append(self.origin)
        return number

    def open(self, cell: int) -> tuple[Node, list[int], list[Label]]:
        """Returns the node of a cell, its arguments as cells, and the label of every number in it.

        Axes that end here get labels that the cell does not have. Do not change the lists: later calls return them too.
        """
        if cell in self._opened:
            return self._opened[cell]
        term, labels = self._cells[cell]
        node = self.nodes[term]
        spare = (label for label in (("bound", i) for i in itertools.count()) if label not in labels)
        names: list[Label] = [*itertools.islice(spare, node.bound), *labels]
        args = [self.cell(arg, tuple([names[i] for i in where])) for arg, where in node.args]
        self._opened[cell] = node, args, names
        return self._opened[cell]

    def fresh(self, cell: int) -> list[Axis]:
        """Returns labels and lengths of the axes that begin at the node of a cell."""
        term, labels = self._cells[cell]
        node = self.nodes[term]
        read = {number for _, where in node.args for number in where if number >= node.bound}
        return list(zip(labels, node.shape, strict=True))[len(read) :]

    def ordered(self, cells: Sequence[int], weights: Sequence[Hashable] | None = None) -> list[int]:
        """Returns positions of ``cells`` in an order that depends on terms and labels, not on the given order.

        Args:
            cells: arguments of a node whose arguments commute.
            weights: further distinctions, comparable.
        """
        terms = [self._cells[cell][0] for cell in cells]
        if len(set(terms)) == len(terms):
            return sorted(range(len(cells)), key=terms.__getitem__)
        labels = [self._cells[cell][1] for cell in cells]
        return sorted(
            range(len(cells)), key=lambda i: (terms[i], weights[i] if weights else 0, str(labels[i]))
        )
