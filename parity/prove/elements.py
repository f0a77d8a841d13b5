"""Numbers of values for the search of differences: if rules follow movement, a change of shape is no difference."""

from collections.abc import Iterable, Sequence

from parity.ir.stablehlo.program import Op
from parity.prove.numbering import Numbering, Table
from parity.prove.rules.numbering import RuledNumbering
from parity.prove.rules.terms import Terms
from parity.prove.rules.types import parse_array

__all__ = ["Elements"]


class Elements:
    """Two numbered programs; with rules, each value is identified by its elements in order.

    Args:
        table: of both programs.
        numberings: numberings of the two programs.
    """

    def __init__(self, table: Table, numberings: Sequence[Numbering]):
        self._terms = table if isinstance(table, Terms) else None
        self._numberings = numberings

    def number(self, side: int, value: int) -> int:
        """Returns the number of a value's elements in order, regardless of its shape."""
        number = self._numberings[side].env[value]
        known = self._terms.values.get(number) if self._terms else None
        return self._terms.flat(known.view) if self._terms and known else number

    def source(self, side: int, value: int) -> int:
        """Returns the number of the source of which a value is a view."""
        number = self._numberings[side].env[value]
        known = self._terms.values.get(number) if self._terms else None
        return known.view.source if known else number

    def moved(self, reference: int, candidate: int) -> bool:
        """True if the values of both sides view one source, but not the same elements in the same order."""
        differing = self.number(0, reference) != self.number(1, candidate)
        return differing and self.source(0, reference) == self.source(1, candidate)

    def numbers(self, side: int, values: Iterable[int]) -> set[int]:
        """Returns the numbers of those values that have one."""
        env = self._numberings[side].env
        return {self.number(side, value) for value in values if env[value] >= 0}

    def is_movement(self, side: int, op: Op) -> bool:
        """True if rules remove an operation: it moves elements, or equals its operand or a constant."""
        numbering = self._numberings[side]
        return isinstance(numbering, RuledNumbering) and op.results.start in numbering.vanished

    def types_alike(self, left: Op, right: Op) -> bool:
        """True if results have equal types, or, with rules, equal counts and element types."""
        if left.form.slots_out == right.form.slots_out or not self._terms:
            return left.form.slots_out == right.form.slots_out
        kinds = [[parse_array(kind) for kind in op.form.slots_out] for op in (left, right)]
        covered = [[(kind.element, kind.count) if kind else None for kind in side] for side in kinds]
        return covered[0] == covered[1] and None not in covered[0]
