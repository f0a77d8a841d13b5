"""Integers of a small range: functions of one of them are tables, so equal functions are equal tables."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from parity.prove.exact.integers import fold
from parity.prove.exact.terms import REAL, RefusalError

if TYPE_CHECKING:
    from parity.prove.exact.algebra import Algebra

__all__ = ["Tables"]

MOST = 4_096
"""Longest table."""
PASSING = frozenset({"at", "slice", "reshape"})
"""Kinds whose elements are elements of their argument."""


class Tables:
    """Writes what is computed of one integer whose range is known as a table over that range.

    Args:
        algebra: of the cells.

    Attributes:
        ranges: by term of an input, its least value and one more than its greatest.
    """

    def __init__(self, algebra: "Algebra"):
        self.algebra, self.terms = algebra, algebra.terms
        self.ranges: dict[int, tuple[int, int]] = {}

    def limit(self, cells: Iterable[int], within: tuple[int, int]) -> None:
        """Takes it that cells are in a range, the second value not among them.

        Raises:
            RefusalError: they are no integers, or the range is too long.
        """
        low, high = within
        if not 0 < high - low <= MOST:
            raise RefusalError(f"got a range of {high - low} integers, expected 1 to {MOST}")
        for cell in cells:
            if self.terms.node(cell).sort in (REAL, "i1"):
                raise RefusalError("got a range of what is no integer")
            self.ranges[self.terms.term(cell)] = within

    def map(self, name: str, cells: Sequence[int], sort: str, detail: Hashable) -> int | None:
        """Returns a function of cells as a table; None where it is not one of a single integer of known range.

        Args:
            name, sort, detail: as for `Algebra.map`; of integers or booleans.
            cells: the operands.
        """
        if not self.ranges:
            return None
        columns, base = [], None
        for cell in cells:
            literal = self.algebra.literal(cell)
            if literal is not None:
                columns.append(literal)
                continue
            found = self._column(cell)
            if found is None or base not in (None, found[0]):
                return None
            base = found[0]
            columns.append(found[1])
        if base is None:
            return None
        low, high = self._range(self.terms.term(base)) or (0, 0)
        rows = [
            [column[place] if isinstance(column, tuple) else column for column in columns]
            for place in range(high - low)
        ]
        made = [_folded(name, row, sort, detail) for row in rows]
        if any(value is None for value in made):
            return None
        return self.table(base, low, tuple(made), sort)

    def table(self, base: int, low: int, values: tuple[Any, ...], sort: str) -> int:
        """Returns the table of a cell: a constant where all values are one, the cell where it is itself."""
        if all(value == values[0] for value in values):
            return self.algebra.constant(values[0], sort)
        node = self.terms.node(base)
        literal = self.algebra.literal(base)
        if literal is not None:
            return self.algebra.constant(values[int(literal) - low], sort)
        if sort == node.sort and values == tuple(range(low, low + len(values))):
            return base
        return self.terms.make("map", ("table", (low, values)), [base], sort)

    def _column(self, cell: int) -> tuple[int, tuple[Any, ...]] | None:
        """Returns the integer that a cell is a function of, and the function's values."""
        node = self.terms.node(cell)
        if node.kind == "map" and isinstance(node.params, tuple) and node.params[0] == "table":
            return self.terms.open(cell)[1][0], node.params[1][1]
        found = self._range(self.terms.term(cell))
        return None if found is None else (cell, tuple(range(*found)))

    def _range(self, term: int) -> tuple[int, int] | None:
        while term not in self.ranges and (node := self.terms.nodes[term]).kind in PASSING:
            term = node.args[0][0]
        return self.ranges.get(term)


def _folded(name: str, row: Sequence[Any], sort: str, detail: Hashable) -> Any:
    if name in ("and", "or") and sort == "i1":
        return all(row) if name == "and" else any(row)
    if name == "select":
        return row[1] if row[0] else row[2]
    if name == "convert":
        return bool(row[0]) if sort == "i1" else fold("add", [int(row[0]), 0], sort, None)
    return fold(name, row, sort, detail)
