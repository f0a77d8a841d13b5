"""Static facts about the results of a lowered program: their sources, and whether they are all zero or NaN.

A proof makes many guards unnecessary, but not these: two programs that return NaN, only zeros, or values that no
parameter reaches may still be the same program.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence

from parity.ir.mlir import dense_numbers
from parity.ir.stablehlo.operations import Operation, facts
from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram

__all__ = ["Content", "Fact", "result_facts"]


class Content(enum.Enum):
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

    def join(self, other: "Fact") -> "Fact":
        """Returns the facts that hold for a value that is one or the other."""
        same = self.content is other.content
        return Fact(self.sources | other.sources, self.content if same else Content.ANY)


def result_facts(program: StableProgram, labels: Sequence[frozenset[str]]) -> tuple[Fact, ...]:
    """Returns the facts about each result of a program. Loops are iterated to a fixed point.

    Args:
        program: as the prover reads it.
        labels: labels of each argument of ``@main``; a computed value has the union of the labels of its operands.
    """
    walk = _Walk(program)
    for value, label in zip(program.body.parameters, labels, strict=True):
        walk.facts[value] = Fact(label)
    walk.region(program.body)
    return tuple(walk.facts[value] for value in program.body.outputs)


class _Walk:
    def __init__(self, program: StableProgram):
        self.facts: list[Fact] = [Fact()] * program.values
        self._known: dict[tuple[int, ...], Fact] = {}
        self._facts: dict[Fact, Fact] = {}

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.live is not None:
                SLOTTED.get(op.form.kind, _Walk.plain)(self, op)

    def of(self, values: Sequence[int]) -> list[Fact]:
        return [self.facts[value] for value in values]

    def plain(self, op: Op) -> None:
        """Caches facts by form and operands' facts: there are few of both, so that most are known."""
        if op.regions:
            fact = self._made(op)
        else:
            key = (id(op.form), *[id(self.facts[value]) for value in op.operands])
            fact = self._known.get(key)
            if fact is None:
                fact = self._known[key] = self._made(op)
        for value in op.results:
            self.facts[value] = fact

    def _made(self, op: Op) -> Fact:
        known = self.of(op.operands)
        sources = frozenset().union(*(fact.sources for fact in known))
        for inner in op.regions:  # combiners: only their captures; see `_content`
            for value, fact in zip(inner.parameters, known * 2, strict=False):
                self.facts[value] = Fact(fact.sources)
            self.region(inner)
            sources |= frozenset().union(*(fact.sources for fact in self.of(inner.outputs)))
        fact = Fact(sources, _content(op, known))
        return self._facts.setdefault(fact, fact)

    def loop(self, op: Op) -> None:
        condition, body = op.regions
        carried = self.of(op.operands)
        while True:
            for region in (condition, body):
                for value, fact in zip(region.parameters, carried, strict=True):
                    self.facts[value] = fact
                self.region(region)
            stop = self.facts[condition.outputs[0]].sources
            after = [old.join(new) for old, new in zip(carried, self.of(body.outputs), strict=True)]
            if after == carried:
                break
            carried = after
        for value, fact in zip(op.results, carried, strict=True):
            self.facts[value] = Fact(fact.sources | stop, fact.content)

    def branch(self, op: Op) -> None:
        for region in op.regions:
            self.region(region)
        chosen = self.facts[op.operands[0]].sources
        for slot, value in enumerate(op.results):
            first, *others = self.of([region.outputs[slot] for region in op.regions])
            for other in others:
                first = first.join(other)
            self.facts[value] = Fact(first.sources | chosen, first.content)

    def barrier(self, op: Op) -> None:
        for value, fact in zip(op.results, self.of(op.operands), strict=True):
            self.facts[value] = fact

    def manual(self, op: Op) -> None:
        (inner,) = op.regions
        for value, fact in zip(inner.parameters, self.of(op.operands), strict=True):
            self.facts[value] = fact
        self.region(inner)
        for value, fact in zip(op.results, self.of(inner.outputs), strict=True):
            self.facts[value] = fact


SLOTTED: Mapping[Kind, Callable[[_Walk, Op], None]] = {
    Kind.WHILE: _Walk.loop,
    Kind.BRANCH: _Walk.branch,
    Kind.BARRIER: _Walk.barrier,
    Kind.MANUAL: _Walk.manual,
}


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
