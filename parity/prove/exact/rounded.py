"""Floats on machines: movement is resolved, and every other operation rounds, so it stays an operation on its operands.

Terms of this algebra are equal only if the same operations apply to the same elements. No sum is reordered, no float is
folded, except that ``x + 0`` is ``x``: that loses the sign of ``x = -0``. Integers and booleans are exact, as in
`Algebra`. A row of a product is one index of the product, never a product of rows: in another shape the same sums may
be added in another order.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.prove.exact import contractions, operations
from parity.prove.exact.algebra import COMMUTING, Algebra
from parity.prove.exact.contents import Step
from parity.prove.exact.interpreter import REALS, Arithmetic
from parity.prove.exact.operations import OPERATIONS, Handler
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import REAL, Label, RefusalError
from parity.prove.rules.types import is_whole_number

PIECE = ("piece",)
ZEROS = ("0x0.0p+0", "-0x0.0p+0")
SHARDING = "sdy.sharding"
"""The attribute that holds the shardings of results."""


def sort_of(element: str) -> str:
    """Returns the sort of an element type: the type itself, so that two widths of floats are never one sort."""
    if element == REAL or not re.fullmatch(r"[a-z]\w*(<\w+>)?", element):
        raise RefusalError(f"got elements {element}, expected floats, integers, booleans or complex numbers")
    return element


class Rounding(Algebra):
    """Constructors that leave every operation on floats unchanged, except for sums with zero."""

    past_reshape = True

    def map(self, name: str, cells: Sequence[int], sort: str = REAL, detail: Hashable = None) -> int:
        """Returns a function of cells, element by element; for floats it is a separate term."""
        sorts = [self.terms.node(cell).sort for cell in cells]
        if name in ("select", "convert") or all(map(is_whole_number, (*sorts, sort))):
            return super().map(name, cells, sort, detail)
        cells = list(cells)
        if name == "add" and (left := [cell for cell in cells if not self._is_zero(cell)]) != cells:
            self.dropped.add(tuple(cells))
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

    def _is_zero(self, cell: int) -> bool:
        node = self.terms.node(cell)
        return node.kind == "float" and node.params in ZEROS

    def _convert(self, cell: int, source: str, target: str) -> int:
        if source == target or (is_whole_number(source) and is_whole_number(target)):
            return super()._convert(cell, source, target)
        return self.terms.make("map", ("convert", source, target), [cell], target)

    def constant(self, value: bool | int | str, sort: str) -> int:
        """Returns an integer or a boolean."""
        if not is_whole_number(sort):
            raise RefusalError(f"got the constant {value} of {sort}, expected an integer or a boolean")
        return super().constant(value, sort)

    def element(self, value: Any, sort: str) -> int:
        """Returns the constant for a number, or all its bits as text; floats are identified by all bits."""
        if is_whole_number(sort):
            return super().element(value, sort)
        if value != value:  # Python's number does not keep its bits
            raise RefusalError(f"got a NaN of {sort} in a constant, expected numbers")
        text = value if isinstance(value, str) else float(value).hex()
        return self.terms.leaf("float", text, sort=sort)

    def _never(self, *args: Any, **options: Any) -> Any:
        raise RefusalError("got a law of the reals, expected operations that round")

    number = total = product = reciprocal = sum_over = _never

    def extreme(self, name: str, cells: Iterable[int], sort: str = REAL) -> int:
        """Returns a conjunction or disjunction; maxima of floats are operations."""
        return super().extreme(name, cells, sort) if is_whole_number(sort) else self._never()

    def extreme_over(self, name: str, cell: int, labels: Sequence[Label], sort: str = REAL) -> int:
        """Returns the conjunction or disjunction along labels."""
        return super().extreme_over(name, cell, labels, sort) if is_whole_number(sort) else self._never()


def attributes(step: Step, but: str = "") -> str:
    """Returns the attributes of an operation as text, except shardings and the attribute ``but``."""
    texts = (
        f"{name} = {value}" for name, value in sorted(step.attributes.items()) if name not in (SHARDING, but)
    )
    text = ", ".join(texts)
    if "dense_resource" in text or "@" in text:
        raise RefusalError(f"{step.name}: got {text}, expected attributes that say all by themselves")
    return text


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


def operation(
    tensors: Tensors,
    step: Step,
    operands: Sequence[Tensor],
    roles: Sequence[Sequence[Label]] | None = None,
    more: Hashable = None,
) -> list[Tensor]:
    """Returns an operation as an opaque function of its whole operands: their axes end, the results' axes begin.

    Args:
        roles: names of the dimensions of each operand; the key orders them by name.
        more: key of the operation; by default its content.
    """
    if step.captured:
        raise RefusalError(f"{step.name}: got a region that reads values from around it")
    if roles is None:
        roles = [[(place, dim) for dim in range(len(x.shape))] for place, x in enumerate(operands)]
        more = step.content
    cells, sizes, results = [], {}, []
    for x, names in zip(operands, roles, strict=True):
        cells.append(tensors.terms.relabel(whole(tensors, x), dict(enumerate(names))))
        sizes |= dict(zip(names, x.shape, strict=True))
    order = sorted(sizes)
    key = (more, tuple((name, sizes[name]) for name in order), tuple(x.sort for x in operands))
    for slot, (shape, sort) in enumerate(zip(step.shapes, step.sorts, strict=True)):
        fresh = [(dim, size) for dim, size in enumerate(shape) if size > 1]
        cell = tensors.terms.make(step.name, (key, slot, shape), cells, sort, ends=order, fresh=fresh)
        results.append(tensors.uniform(cell, shape, sort))
    return results


def dot_general(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a product of whole arrays, keyed by the roles of dimensions: their layout changes no sum."""
    roles = contractions.dot_roles(step, operands)
    more = attributes(step, "dot_dimension_numbers")
    return operation(tensors, step, operands, roles, ("by role", more))


def reduce(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns a reduction of whole arrays; integers and booleans as in `contractions`."""
    if all(is_whole_number(x.sort) for x in operands):
        return moving(contractions.reduce)(tensors, step, operands)
    return operation(tensors, step, operands)


def elementwise(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Applies an operation place by place; for floats, all its attributes are part of the function."""
    if all(map(is_whole_number, (*step.sorts, *(x.sort for x in operands)))):
        return operations.elementwise(tensors, step, operands)
    return operations.elementwise(tensors, step, operands, _function(tensors, step))


def _function(tensors: Tensors, step: Step) -> Callable[..., int]:
    name, (sort,), algebra = facts(step.name).short, step.sorts, tensors.algebra
    assert isinstance(algebra, Rounding)
    detail = attributes(step) or None
    plain = lambda *cells: algebra.map(name, cells, sort, detail)  # noqa: E731
    if name != "add":
        return plain

    def add(a: int, b: int) -> int:
        """Adds piece by piece if pieces are zero, as padding is."""
        pieces = tensors.pieces
        label = next((label for cell in (a, b) if (label := algebra.padded(cell)) is not None), None)
        if label is None:
            return plain(a, b)
        ends = {end for cell in (a, b) for end in pieces.ends(cell, label)}
        parts, start = [], 0
        for end in sorted(ends):
            cut = [pieces.cut(cell, label, (start, end, 1), PIECE) for cell in (a, b)]
            parts.append((add(*cut), end - start))
            start = end
        return pieces.join(parts, PIECE, label)

    return add


def iota(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the index along a dimension; for floats as an opaque row."""
    (shape,), (sort,), (dim,) = step.shapes, step.sorts, step.dims("iota_dimension")
    if is_whole_number(sort):
        return OPERATIONS["stablehlo.iota"](tensors, step, operands)
    axes = [(dim, shape[dim])] if shape[dim] > 1 else []
    return [tensors.uniform(tensors.terms.leaf("iota of floats", None, axes, sort), shape, sort)]


def moving(handler: Handler) -> Handler:
    """Returns a handler that resolves movement if it is known, and else keeps the operation opaque."""

    def move(tensors: Tensors, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
        promised = step.text("indices_are_sorted") == "true"  # rows by themselves do not promise an order
        try:
            return operation(tensors, step, operands) if promised else handler(tensors, step, operands)
        except RefusalError:
            return operation(tensors, step, operands)

    return move


MOVES = names_of(Group.REARRANGES, Group.PICKS, Group.JOINS, "bitcast_convert")
ROUNDED = Arithmetic(
    algebra=Rounding,
    handlers={
        **dict.fromkeys(names_of(Group.WHOLE), operation),
        **{name: moving(REALS.handlers[name]) for name in MOVES},
        **dict.fromkeys(names_of(Group.ELEMENTWISE), elementwise),
        "stablehlo.constant": OPERATIONS["stablehlo.constant"],
        "stablehlo.iota": iota,
        "stablehlo.dot_general": dot_general,
        "stablehlo.reduce": reduce,
    },
    sort_of=sort_of,
)
"""Arithmetic of floats on machines: every operation rounds separately, up to the sign of zero."""
