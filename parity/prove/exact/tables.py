"""Integers of a small range: functions of one such integer are tables, so equal functions are equal tables."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from parity.prove.exact.scalars import fold
from parity.prove.exact.terms import REAL, RefusalError, Terms

__all__ = ["Tables"]

MOST = 4_096
"""Longest table."""
PASSING = frozenset({"at", "slice", "reshape"})
"""Kinds whose elements are elements of their argument."""


class Tables:
    """Functions of one integer of known range, as their values over that range.

    Args:
        terms: the table of terms.

    Attributes:
        ranges: minimum and maximum plus one, by term of an input.
    """

    def __init__(self, terms: Terms):
        self.terms = terms
        self.ranges: dict[int, tuple[int, int]] = {}

    def limit(self, cells: Iterable[int], within: tuple[int, int]) -> None:
        """Assumes that cells are in a range; its second value is excluded.

        Raises:
            RefusalError: they are not integers, or the range is too long.
        """
        low, high = within
        if not 0 < high - low <= MOST:
            raise RefusalError(f"got a range of {high - low} integers, expected 1 to {MOST}")
        for cell in cells:
            if self.terms.node(cell).sort in (REAL, "i1"):
                raise RefusalError("got a range of what is no integer")
            self.ranges[self.terms.term(cell)] = within

    def tabulate(
        self, name: str, cells: Sequence[int], known: Sequence[Any], sort: str, detail: Hashable
    ) -> tuple[int, int, tuple[Any, ...]] | None:
        """Returns the integer that a function depends on, its minimum, and the function's values over its range.

        Args:
            name, sort, detail: as for `Algebra.map`; of integers or booleans.
            cells: the operands.
            known: the values of operands that are constants.

        Returns:
            None if it is not a function of a single integer of known range.
        """
        if not self.ranges:
            return None
        columns, base = [], None
        for cell, literal in zip(cells, known, strict=True):
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
        made = tuple([fold(name, row, sort, detail) for row in rows])
        return None if None in made else (base, low, made)

    def _column(self, cell: int) -> tuple[int, tuple[Any, ...]] | None:
        """Returns the integer that a cell depends on, and the values of the function."""
        node = self.terms.node(cell)
        if node.kind == "map" and isinstance(node.params, tuple) and node.params[0] == "table":
            return self.terms.open(cell)[1][0], node.params[1][1]
        found = self._range(self.terms.term(cell))
        return None if found is None else (cell, tuple(range(*found)))

    def _range(self, term: int) -> tuple[int, int] | None:
        while term not in self.ranges and (node := self.terms.nodes[term]).kind in PASSING:
            term = node.args[0][0]
        return self.ranges.get(term)
