"""Algebra of floats on machines: every operation rounds separately, so it stays an operation on its operands.

Terms of this algebra are equal only if the same operations apply to the same elements. No sum is reordered, no float is
folded. ``x + 0`` is ``x`` only with `zeros`: it loses the sign of ``x = -0``. Integers and booleans are exact, as in
`Algebra`.
"""

import itertools
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from parity.prove.exact.algebra import COMMUTING, Algebra
from parity.prove.exact.terms import REAL, Axis, Label, Referring, RefusalError, Terms

__all__ = ["Rounding", "is_float", "sort_of"]

ZEROS = ("0x0.0p+0", "-0x0.0p+0")


def sort_of(element: str) -> str:
    """Returns the sort of an element type: the type itself, so that two widths of floats are never one sort."""
    if element == REAL or not re.fullmatch(r"[a-z]\w*(<\w+>)?", element):
        raise RefusalError(f"got elements {element}, expected floats, integers, booleans or complex numbers")
    return element


def is_float(sort: str) -> bool:
    """True if elements round: all types except integers and booleans."""
    return re.fullmatch(r"u?i\d+", sort) is None


class Rounding(Algebra):
    """Constructors that leave every operation on floats unchanged.

    Args:
        terms: the table.
        zeros: True if ``x + 0`` is ``x``, up to the sign of zero; kept as an attribute.

    Attributes:
        dropped: number of zeros that were left out of sums.
    """

    past_reshape = True

    def __init__(self, terms: Terms, *, zeros: bool = False):
        super().__init__(terms)
        self.zeros, self.dropped = zeros, 0

    def map(self, name: str, cells: Sequence[int], sort: str = REAL, detail: Hashable = None) -> int:
        """Returns a function of cells, element by element; for floats it is a separate term.

        Args:
            name: name of the operation, without its dialect.
            cells: the operands.
            sort: sort of the result.
            detail: content of the operation's attributes.
        """
        sorts = [self.terms.node(cell).sort for cell in cells]
        if name in ("select", "convert") or not any(map(is_float, (*sorts, sort))):
            return super().map(name, cells, sort, detail)
        cells = list(cells)
        if (
            name == "add"
            and self.zeros
            and (left := [cell for cell in cells if not self._is_zero(cell)]) != cells
        ):
            self.dropped += 1
            return left[0] if left else cells[0]
        if name in COMMUTING:  # up to which of two NaNs is kept
            cells = [cells[i] for i in self.terms.ordered(cells)]
        return self.terms.make("map", (name, detail) if detail is not None else name, cells, sort)

    def padded(self, cell: int) -> Label | None:
        """Returns the label of a cell that is a concatenation with a zero part; None for any other cell."""
        node, args, _ = self.terms.open(cell)
        return (
            self.terms.fresh(cell)[0][0] if node.kind == "concat" and any(map(self._is_zero, args)) else None
        )

    def ends(self, cell: int, label: Label) -> list[int]:
        """Returns the ends of the parts of a cell along a label."""
        node = self.terms.node(cell)
        if node.kind != "concat" or label not in dict(self.terms.fresh(cell)):
            return [self.terms.sizes(cell)[label]] if label in self.terms.labels(cell) else []
        return list(itertools.accumulate(node.params[0]))

    def _is_zero(self, cell: int) -> bool:
        node = self.terms.node(cell)
        return node.kind == "float" and node.params in ZEROS

    def _convert(self, cell: int, source: str, target: str) -> int:
        if source == target or not (is_float(source) or is_float(target)):
            return super()._convert(cell, source, target)
        return self.terms.make("map", ("convert", source, target), [cell], target)

    def constant(self, value: bool | int | str, sort: str) -> int:
        """Returns an integer or a boolean.

        Raises:
            RefusalError: a float is requested by its value; `element` makes these.
        """
        if is_float(sort):
            raise RefusalError(f"got the constant {value} of {sort}, expected an integer or a boolean")
        return super().constant(value, sort)

    def element(self, value: Any, sort: str) -> int:
        """Returns the constant for one element of a program's constant; for floats identified by all bits.

        Args:
            value: a number, or all its bits as text.
            sort: sort of the element.

        Raises:
            RefusalError: a NaN, because Python's number does not keep its bits.
        """
        if not is_float(sort):
            return super().element(value, sort)
        if value != value:
            raise RefusalError(f"got a NaN of {sort} in a constant, expected numbers")
        text = value if isinstance(value, str) else float(value).hex()
        return self.terms.leaf("float", text, sort=sort)

    def _never(self, *args: Any, **options: Any) -> Any:
        raise RefusalError("got a law of the reals, expected operations that round")

    number = total = product = reciprocal = sum_over = _never

    def extreme(self, name: str, cells: Iterable[int], sort: str = REAL) -> int:
        """Returns a conjunction or disjunction; maxima of floats are operations."""
        return self._never() if is_float(sort) else super().extreme(name, cells, sort)

    def extreme_over(self, name: str, cell: int, labels: Sequence[Label], sort: str = REAL) -> int:
        """Returns the conjunction or disjunction along labels."""
        return self._never() if is_float(sort) else super().extreme_over(name, cell, labels, sort)

    def opaque(
        self,
        name: str,
        key: Hashable,
        cells: Sequence[int],
        labels: Sequence[Label | None],
        shape: Sequence[int],
        sort: str,
    ) -> int:
        """Returns one result of an operation on whole arrays: all axes of its operands end, the result's axes begin.

        Args:
            name: name of the operation, with its dialect.
            key: all other content of the operation, with the shapes of its operands.
            cells: the operands, with the labels of their dimensions.
            labels: of all dimensions by role; None if the operand is uniform, or of length one.
            shape: shape of the result.
            sort: of its elements.
        """
        fresh: list[Axis] = [(dim, size) for dim, size in enumerate(shape) if size > 1]
        bound = [label for label in labels if label is not None]
        params = Referring((key, tuple(shape)), tuple(labels))
        return self.terms.make(name, params, cells, sort, bound=bound, fresh=fresh)
