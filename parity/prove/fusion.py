"""Operations whose order of operands decides bits, because compiled code adds two products next to them.

LLVM makes one operation of a sum and one of its products. It chooses the product whose operands are read later, so that
each order of operands in the same fused loop counts.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence

from parity.ir.stablehlo.operations import Group, names_of
from parity.ir.stablehlo.program import Kind, Op, StableProgram, is_float, makers

_FUSED = names_of(
    Group.ELEMENTWISE,
    Group.REARRANGES,
    Group.PICKS,
    Group.JOINS,
    Group.SAME,
    *("bitcast_convert", "case", "if", "reduce", "reduce_window", "scatter", "select_and_scatter"),
) - names_of("optimization_barrier")
_MOVES = names_of(Group.REARRANGES, Group.PICKS, Group.JOINS) | names_of(
    "select", "clamp", "maximum", "minimum", "abs", "negate", "multiply", "divide"
)
_SCALES = names_of("multiply", "divide")
_PRODUCTS = _SCALES | names_of("exponential", "power") | {"chlo.square"}
"""Operations that XLA or LLVM may write as a product."""
_KEEP = names_of(Group.REARRANGES, Group.PICKS, Group.SAME, "convert", "negate")
"""Operations whose result is a product if their first operand is one."""
_NEUTRAL = names_of("add", "subtract", "maximum", "minimum")
"""Operations that vanish if one operand is a certain constant."""
_MADE = names_of(Group.MAKES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fusions:
    """First results of operations, sorted by the operations that compiled code may fuse them with.

    Args:
        ordered: those that may be fused with a sum of two products.
        moved: those fused with data movement, choices and at most one product of floats only, from arguments and
            constants to results, on one device. Nothing else rounds.
    """

    ordered: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()


def fusions(program: StableProgram) -> Fusions:
    """Returns which operations of a program may be fused with sums, and which only with moves."""
    ops = [op for op in program.body.walk() if op.live is not None]
    made = makers(program)
    group: dict[int, int] = {}

    def root(value: int) -> int:
        while (above := group.setdefault(value, value)) != value:
            group[value] = group[above]
            value = above
        return value

    for op in ops:
        for value in _inputs(op) if op.form.name in _FUSED else ():
            if value in made and made[value].form.name in _FUSED:
                group[root(made[value].results.start)] = root(op.results.start)
    sums = _Sums(ops, made)
    found = {root(op.results.start) for op in sums.run()}
    # A gather of an array that lies on several devices adds up zeros of the others, which -0.0 does not survive.
    is_whole = program.module.get("mhlo.num_partitions", "1 : i32") == "1 : i32"
    moves = {op.results.start for op in program.body.ops if is_whole and _only_moves(op)}
    others = [op for op in ops if op.results.start not in moves and op.form.name not in _MADE]
    mixed = {value for op in others for value in (*op.results, *op.operands)}
    mixed |= {value for op in others for region in op.regions for value in region.outputs}
    mixed = {root(op.results.start) for op in ops if not mixed.isdisjoint((op.results.start, *op.operands))}
    rounded = collections.Counter(root(op.results.start) for op in ops if sums.scales(op))
    mixed.update(group for group, count in rounded.items() if count > 1)
    return Fusions(
        ordered=frozenset(value for value in group if root(value) in found),
        moved=frozenset(value for value in moves if root(value) not in mixed),
    )


def _only_moves(op: Op) -> bool:
    """True for an operation that moves, chooses or multiplies elements, or whose result is no float."""
    if op.form.name == "stablehlo.scatter":
        return op.regions[0].outputs == op.regions[0].parameters[1:]
    is_exact = not any(map(is_float, op.form.slots_out))
    if op.form.name == "stablehlo.convert":
        is_exact |= str(op.source.operands[0].type) == op.form.slots_out[0]
    is_plain = not op.regions or op.form.name == "stablehlo.reduce"
    return op.form.name in _FUSED and is_plain and (is_exact or op.form.name in _MOVES)


def _inputs(op: Op) -> Iterator[int]:
    yield from op.operands
    for region in op.regions if op.form.kind == Kind.BRANCH else ():
        yield from region.outputs


class _Sums:
    """The sums of two products of a program, given the operation that computes each value."""

    def __init__(self, ops: Sequence[Op], made: dict[int, Op]):
        self._ops, self._made = ops, made
        self._carries = {
            value for op in ops if op.form.kind == Kind.WHILE for value in op.regions[1].parameters
        }
        self._constants: set[int] = set()
        for op in ops:
            if op.form.name == "stablehlo.constant" or (
                op.form.name in _KEEP and self._constants.issuperset(op.operands)
            ):
                self._constants.update(op.results)

    def run(self) -> Iterator[Op]:
        """Yields the sums, except where one product is a factor of the other, which is then always read later."""
        for op in self._ops:
            if op.form.name in ("stablehlo.add", "stablehlo.subtract") and op.form.is_float:
                left, right = map(self._source, op.operands)
                related = left in self._factors(right) or right in self._factors(left)
                if self._is_product(left) and self._is_product(right) and not related:
                    yield op

    def scales(self, op: Op) -> bool:
        """True for a product of floats, and for a choice of two constants, of which XLA makes a product."""
        choice = op.form.name == "stablehlo.select" and self._constants.issuperset(op.operands[1:])
        return (choice or op.form.name in _SCALES) and op.form.is_float

    def _source(self, value: int) -> int:
        """Returns the value behind operations that may vanish or leave a product what it is."""
        while (op := self._made.get(value)) is not None:
            inputs = [each for each in op.operands if each not in self._constants]
            vanishes = op.form.name in _NEUTRAL and len(inputs) == 1
            if not (op.form.name in _KEEP or vanishes or self._is_scaled(op)):
                break
            value = inputs[0] if inputs else op.operands[0]
        return value

    def _is_scaled(self, op: Op) -> bool:
        """True for a reduction of single elements, or of repeated ones, of which XLA makes a product."""
        maker = self._made.get(op.operands[0]) if op.form.name == "stablehlo.reduce" else None
        if maker is None:
            return False
        repeats = maker.form.name == "stablehlo.broadcast_in_dim"
        return repeats or math.prod(maker.form.shapes[0]) == math.prod(op.form.shapes[0])

    def _is_product(self, value: int) -> bool:
        """True if a value may be a product, such as that of a loop of one iteration, which XLA removes."""
        op = self._made.get(value)
        if op is None:
            return value in self._carries
        return op.form.name in _PRODUCTS or op.form.kind in (Kind.WHILE, Kind.BRANCH)

    def _factors(self, value: int) -> set[int]:
        op = self._made.get(value)
        return set(map(self._source, op.operands)) if op and op.form.name == "stablehlo.multiply" else set()
