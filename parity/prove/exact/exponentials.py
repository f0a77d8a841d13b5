"""Laws of the exponential: a product of exponentials is the exponential of the sum, and what follows from it.

A running maximum that is taken off before exponentials and put back after them drops out by these laws.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from parity.prove.exact.terms import REAL

if TYPE_CHECKING:
    from parity.prove.exact.algebra import Algebra, Number

__all__ = ["Exponentials"]

MOST_POWER = 8
"""Largest n of which ``exp(n * log(x))`` is written as a product of n factors."""


class Exponentials:
    """Normal forms of exponentials, logarithms, and of what both meet in.

    ``exp`` of a sum is a product of exponentials of one term each, and a product has at most one of each term.

    Args:
        algebra: of the cells.
    """

    def __init__(self, algebra: "Algebra"):
        self.algebra, self.terms = algebra, algebra.terms

    def exponential(self, cell: int) -> int:
        """Returns ``exp(x)``, with ``exp(a + b) = exp(a) * exp(b)``; zero where x is minus infinity."""
        literal = self.algebra.literal(cell)
        if literal in ("-inf", "inf"):
            return self.algebra.zero if literal == "-inf" else cell
        return self.algebra.product([self.power(factor, term) for factor, term in self._entries(cell)])

    def power(self, factor: "Number", term: int) -> int:
        """Returns ``exp(factor * term)`` of a term that is no sum; ``exp(n * log(x))`` is the n-th power of x."""
        algebra, node = self.algebra, self.terms.node(term)
        of_log = node.kind == "map" and node.params == "log"
        if of_log and isinstance(factor, int) and 0 < abs(factor) <= MOST_POWER:
            algebra.assumed[self.terms.term(term)] = None  # x is positive, or there is no value
            (base,) = self.terms.open(term)[1]
            base = base if factor > 0 else algebra.reciprocal(base)
            return algebra.product([base] * abs(factor))
        return self.terms.make("map", "exponential", [algebra.total([(factor, term)])])

    def is_exponential(self, cell: int) -> bool:
        """Whether a cell is the exponential of something."""
        node = self.terms.node(cell)
        return node.kind == "map" and node.params == "exponential"

    def merged(self, factors: Sequence[int]) -> list[int] | None:
        """Returns factors with one exponential for each term, ``exp(x) * exp(-x) = 1``; None where they have."""
        found = [cell for cell in factors if self.is_exponential(cell)]
        if len(found) < 2:
            return None
        powers = self._powers(found)
        if len(powers) == len(found) and all(powers.values()):
            return None
        rest = [cell for cell in factors if not self.is_exponential(cell)]
        for term, power in powers.items():
            if power:
                rest.append(self.power(power, term))
            else:
                self.algebra.assumed[self.terms.term(term)] = None
        return rest

    def inverse(self, cell: int) -> int:
        """Returns ``1 / exp(x)``, which is ``exp(-x)``."""
        ((term, power),) = self._powers([cell]).items()
        return self.power(-power, term)

    def logarithm(self, cell: int) -> int:
        """Returns ``log(x)``, with ``log(exp(a) * b) = a + log(b)``: b is positive where the product is."""
        algebra = self.algebra
        number, rest = algebra.content(self.pulled(cell))
        factors = algebra.factors(rest)
        found = [factor for factor in factors if self.is_exponential(factor)]
        if not found:
            return self._log(cell)
        others = [factor for factor in factors if not self.is_exponential(factor)]
        inner = algebra.product([algebra.number(number), *others])
        entries = [(power, term) for term, power in self._powers(found).items()]
        return algebra.total([*entries, (1, self._log(inner))])

    def _log(self, cell: int) -> int:
        if cell == self.algebra.one:
            return self.algebra.zero
        return self.terms.make("map", "log", [cell], REAL)

    def pulled(self, cell: int) -> int:
        """Returns the same with exponentials that all terms of a sum share in front of the sum."""
        if self.terms.node(cell).kind == "prod":
            factors = self.algebra.factors(cell)
            made = [self.pulled(each) if self._is_sum(each) else each for each in factors]
            return cell if made == factors else self.algebra.product(made)
        if not self._is_sum(cell):
            return cell
        entries = [(c, factors) for n, term in self._entries(cell) for c, factors in self._expanded(n, term)]
        powers = [
            self._powers([each for each in factors if self.is_exponential(each)]) for _, factors in entries
        ]
        first = powers[0] if powers else {}
        common = {
            term: power for term, power in first.items() if all(other.get(term) == power for other in powers)
        }
        if not common:
            return cell
        inside = self.algebra.total(
            (c, self.algebra.product([*factors, *(self.power(-p, t) for t, p in common.items())]))
            for c, factors in entries
        )
        return self.algebra.product([*(self.power(p, t) for t, p in common.items()), self.pulled(inside)])

    def _expanded(self, number: "Number", term: int) -> Iterable[tuple["Number", list[int]]]:
        """Yields the terms that a product of exponentials and one sum has when the sum is multiplied out."""
        factors = self.algebra.factors(term)
        sums = [each for each in factors if self._is_sum(each)]
        if len(sums) != 1 or not any(self.is_exponential(each) for each in factors):
            yield number, factors
            return
        others = [each for each in factors if each != sums[0]]
        for inner, part in self._entries(sums[0]):
            found, rest = self.algebra.content(self.algebra.product([*others, part]))
            yield from self._expanded(number * inner * found, rest)

    def _is_sum(self, cell: int) -> bool:
        node = self.terms.node(cell)
        return node.kind == "sum" and len(node.args) > 1

    def _entries(self, cell: int) -> list[tuple["Number", int]]:
        node = self.terms.node(cell)
        if node.kind != "sum":
            return [(1, cell)]
        return list(zip(node.params, self.terms.open(cell)[1], strict=True))

    def _powers(self, found: Iterable[int]) -> dict[int, "Number"]:
        """Returns, by term, what it is multiplied by in the exponents together."""
        powers: dict[int, Number] = {}
        inner = itertools.chain.from_iterable(self._entries(self.terms.open(cell)[1][0]) for cell in found)
        for factor, term in inner:
            powers[term] = powers.get(term, 0) + factor
        return powers
