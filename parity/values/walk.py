"""A walk over an inlined program that keeps one fact for each value; subclasses define a fact."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram

T = TypeVar("T")


class Walk(Generic[T]):
    """Follows a program's live operations in order; a subclass defines `results`, `loop` and `join`.

    Args:
        unknown: the fact of a value before it is reached.
    """

    def __init__(self, program: StableProgram, unknown: T):
        self.known = [unknown] * program.values

    def results(self, op: Op) -> T:
        """Returns the fact of all results of an operation without slots."""
        raise NotImplementedError

    def loop(self, op: Op) -> None:
        """Follows a while loop."""
        raise NotImplementedError

    def join(self, op: Op, facts: Sequence[T]) -> T:
        """Returns the fact of a result of a branching operation, given those of its branches."""
        raise NotImplementedError

    def branch(self, op: Op) -> None:
        """Follows the branches of an operation."""
        for region in op.regions:
            self.region(region)
        by_branch = [self.of(region.outputs) for region in op.regions]
        self.give(op.results, [self.join(op, facts) for facts in zip(*by_branch, strict=True)])

    def region(self, region: Region) -> None:
        """Follows the operations of a region."""
        for op in region.ops:
            if op.live is None:
                continue
            if op.form.kind == Kind.WHILE:
                self.loop(op)
            elif op.form.kind == Kind.BRANCH:
                self.branch(op)
            elif op.form.kind == Kind.BARRIER:
                self.give(op.results, self.of(op.operands))
            elif op.form.kind == Kind.MANUAL:
                (inner,) = op.regions
                self.give(inner.parameters, self.of(op.operands))
                self.region(inner)
                self.give(op.results, self.of(inner.outputs))
            else:
                fact = self.results(op)
                for value in op.results:
                    self.known[value] = fact

    def of(self, values: Sequence[int]) -> list[T]:
        """Returns the facts of values."""
        return [self.known[value] for value in values]

    def give(self, values: Sequence[int], facts: Sequence[T]) -> None:
        """Sets the facts of values."""
        for value, fact in zip(values, facts, strict=True):
            self.known[value] = fact
