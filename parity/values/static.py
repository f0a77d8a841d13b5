"""Static facts about the results of a lowered program: their sources, and whether they are all zero or NaN.

A proof makes many guards unnecessary, but not these: two programs that return NaN, only zeros, or values that no
parameter reaches may still be the same program.
"""

import dataclasses
import enum
import math
from collections.abc import Sequence

from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.operations import Operation, facts
from parity.ir.stablehlo.program import Op, StableProgram
from parity.values.walk import Walk


class Content(enum.StrEnum):
    """Common content of all entries of a value, as far as the program's text shows it."""

    ANY = "any"
    ZERO = "zero"
    NAN = "nan"


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """Static facts about a value.

    Args:
        sources: labels of the arguments that it may depend on, joined.
        content: content of all its entries. ``zero`` holds for finite inputs only.
    """

    sources: frozenset[str] = frozenset()
    content: Content = Content.ANY


def result_facts(program: StableProgram, labels: Sequence[frozenset[str]]) -> tuple[Fact, ...]:
    """Returns the facts about each result of a program. Loops are iterated to a fixed point.

    Args:
        labels: labels of each argument of ``@main``; a computed value has the union of the labels of its operands.
    """
    walk = _Walk(program, Fact())
    walk.give(program.body.parameters, [Fact(label) for label in labels])
    walk.region(program.body)
    return tuple(walk.of(program.body.outputs))


class _Walk(Walk[Fact]):
    def results(self, op: Op) -> Fact:
        known = self.of(op.operands)
        sources = _sources(known)
        for inner in op.regions:  # combiners: only their captures; see `_content`
            for value, fact in zip(inner.parameters, known * 2, strict=False):
                self.known[value] = Fact(fact.sources)
            self.region(inner)
            sources |= _sources(self.of(inner.outputs))
        return Fact(sources, _content(op, known))

    def loop(self, op: Op) -> None:
        condition, body = op.regions
        carried, before = self.of(op.operands), None
        while carried != before:
            for region in (condition, body):
                self.give(region.parameters, carried)
                self.region(region)
            before, after = carried, self.of(body.outputs)
            carried = [_joined(pair) for pair in zip(carried, after, strict=True)]
        stop = self.known[condition.outputs[0]].sources
        self.give(op.results, [Fact(fact.sources | stop, fact.content) for fact in carried])

    def join(self, op: Op, facts: Sequence[Fact]) -> Fact:
        joined = _joined(facts)
        return Fact(joined.sources | self.known[op.operands[0]].sources, joined.content)


def _sources(known: Sequence[Fact]) -> frozenset[str]:
    return frozenset().union(*(fact.sources for fact in known))


def _joined(known: Sequence[Fact]) -> Fact:
    contents = {fact.content for fact in known}
    return Fact(_sources(known), contents.pop() if len(contents) == 1 else Content.ANY)


def _content(op: Op, known: Sequence[Fact]) -> Content:
    """Returns the common content of the entries of an operation's results, given the facts of its operands."""
    name, found = op.form.name, [fact.content for fact in known]
    if name == "stablehlo.constant":
        return _constant(op)
    if name == "stablehlo.scatter":
        zeros = _combiner(op).zero.suffice([True, True])
        return found[0] if found[0] is found[-1] and (zeros or not op.regions[0].ops) else Content.ANY
    if name == "stablehlo.reduce":
        function = _combiner(op) if len(found) == 2 else facts("")
    else:
        function = facts(name)
        found = found[1:] if name == "stablehlo.select" else found[: function.first_index]
    for content, operands in ((Content.NAN, function.nan), (Content.ZERO, function.zero)):
        if operands.suffice([each is content for each in found]):
            return content
    return Content.ANY


def _combiner(op: Op) -> Operation:
    """Returns the operation by which a region combines two values; without facts if the region does more."""
    inner = [facts(each.form.name) for each in op.regions[0].ops]
    return inner[0] if len(inner) == 1 and inner[0].commutes else facts("")


def _constant(op: Op) -> Content:
    numbers = dense_numbers(op.source.operation)
    if len(numbers) != 1:
        return Content.ANY
    return Content.NAN if math.isnan(numbers[0]) else Content.ANY if numbers[0] else Content.ZERO
