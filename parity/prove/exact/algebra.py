"""Normal forms of arithmetic in exact real numbers, and of integers and booleans, which are folded."""

import math
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from parity.ir.stablehlo.operations import FUNCTIONS
from parity.prove.exact.definedness import Definedness, Sign
from parity.prove.exact.scalars import Tables, fold, in_range, rounded, saturate, wrap
from parity.prove.exact.terms import REAL, Axis, Label, Node, RefusalError, Terms

Number = int | Fraction
BOOL = "i1"
COMMUTING = frozenset(name for name, each in FUNCTIONS.items() if each.commutes)
"""Functions of two elements in any order; sums and products of reals have separate normal forms."""
MOST_POWER = 8
"""Largest n for which ``exp(n * log(x))`` is written as a product of n factors."""
NEUTRAL = {"maximum": "-inf", "minimum": "inf", "and": True, "or": False}
ABSORBING = {"maximum": "inf", "minimum": "-inf", "and": False, "or": True}
NOT_BELOW = {"GE": True, "LT": False}
SURE: dict[Sign, dict[str, bool]] = {
    Sign.UNKNOWN: {},
    Sign.NONNEGATIVE: NOT_BELOW,
    Sign.POSITIVE: {**NOT_BELOW, "GT": True, "LE": False, "EQ": False, "NE": True},
}
"""Results of comparisons with zero by the sign of the left side."""


def _exact(number: Number) -> Number:
    return number.numerator if number.denominator == 1 else number


class Algebra:
    """Constructors that keep terms in normal form.

    Attributes:
        past_reshape: True if functions of elements are applied to reshaped elements.
        assumed: terms that must be defined, because a rule dropped them (``0 * x``, ``x - x``).
        thresholds: jumps of rounded values, as text: these are assumptions, too.
        dropped: sums from which arithmetic that rounds left out a zero, by their operands.
    """

    past_reshape = False

    def __init__(self, terms: Terms):
        self.terms = terms
        self.assumed: dict[int, None] = {}
        self.thresholds: dict[str, None] = {}
        self.dropped: set[tuple[int, ...]] = set()
        self.one = terms.leaf("one", ())
        self.zero = terms.make("sum", (), ())
        self.infinities = {terms.leaf("word", word): sign for word, sign in (("inf", 1), ("-inf", -1))}
        self.definedness = Definedness(terms)
        self.tables = Tables(terms)

    # --- real numbers ---

    def number(self, value: Number) -> int:
        """Returns a constant."""
        return self.total([(value, self.one)])

    def value(self, cell: int) -> Number | None:
        """Returns the value of a real constant; None for another cell."""
        if cell == self.one:
            return 1
        node = self.terms.node(cell)
        if node.kind != "sum" or len(node.args) > 1:
            return None
        if not node.args:
            return 0
        return node.params[0] if node.args[0][0] == self.terms.term(self.one) else None

    def drop(self, cell: int) -> None:
        """Records that a cell multiplied by zero was dropped; it must be a number."""
        if (word := self.literal(cell)) is not None:
            raise RefusalError(f"got 0 * {word}, expected numbers")
        self.assumed[self.terms.term(cell)] = None

    def total(self, entries: Iterable[tuple[Number, int]]) -> int:
        """Returns a sum: a multiset of terms with rational coefficients, flat, without zeros."""
        terms = self.terms
        found: dict[int, Number] = {}
        for factor, cell in entries:
            if factor == 0:
                self.drop(cell)
                continue
            for inner, arg in self._entries(cell):
                found[arg] = found.get(arg, 0) + factor * inner
        if 0 in found.values():
            for cell in [cell for cell, factor in found.items() if factor == 0]:
                self.drop(cell)
                del found[cell]
        if not self.infinities.keys().isdisjoint(found):
            signs = {self.infinities[cell] * found[cell] > 0 for cell in found if cell in self.infinities}
            if len(signs) == 1:
                self.assumed |= {terms.term(cell): None for cell in found if cell not in self.infinities}
                return self.constant("inf" if True in signs else "-inf", REAL)
        cells = list(found)
        factors = [x if type(x) is int else _exact(x) for x in found.values()]
        if len(cells) == 1 and factors[0] == 1:
            return cells[0]
        order = terms.ordered(cells, factors)
        return terms.make("sum", tuple([factors[i] for i in order]), [cells[i] for i in order])

    def product(self, cells: Iterable[int]) -> int:
        """Returns a product: a multiset of factors, flat, with its rational coefficient in front."""
        terms = self.terms
        factor: Number = 1
        found: list[int] = []
        for cell in cells:
            number, rest = self.content(cell)
            factor *= number
            found += self.factors(rest)
        if (made := self._merge_exponentials(found)) is not None:
            return self.product([self.number(factor), *made])
        if factor == 0:
            for cell in found:
                self.drop(cell)
            return self.zero
        if len(found) > 1:
            order = terms.ordered(found)
            found = [terms.make("prod", (), [found[i] for i in order])]
        return found[0] if found and factor == 1 else self.total([(factor, found[0] if found else self.one)])

    def content(self, cell: int) -> tuple[Number, int]:
        """Returns the rational coefficient of a cell, and the remaining cell, whose leading coefficient is one."""
        node = self.terms.node(cell)
        if node.kind != "sum":
            return 1, cell
        if not node.args:
            return 0, self.one
        lead: Number = node.params[0]
        if len(node.args) == 1:
            return lead, self.terms.open(cell)[1][0]
        return (1, cell) if lead == 1 else (lead, self.total([(Fraction(1) / lead, cell)]))

    def factors(self, cell: int) -> list[int]:
        """Returns the factors of a cell without a rational coefficient."""
        node = self.terms.node(cell)
        if node.kind == "one":
            return []
        return self.terms.open(cell)[1] if node.kind == "prod" else [cell]

    def reciprocal(self, cell: int) -> int:
        """Returns ``1 / x``, factor by factor; undefined exactly if a factor is zero."""
        number, rest = self.content(self._pulled(cell))
        if number == 0:
            return self.terms.make("map", "reciprocal", [cell])
        powers, others = self._powers(self.factors(rest))
        parts = [self._power(-power, term) for term, power in powers.items()]
        parts += [self.terms.make("map", "reciprocal", [factor]) for factor in others]
        return self.product([self.number(Fraction(1) / number), *parts])

    def sum_over(self, cell: int, axes: Sequence[Axis]) -> int:
        """Returns the sum along labels: linear, with constant factors in front, and sums of sums merged."""
        terms = self.terms
        node, labels = terms.node(cell), terms.labels(cell)
        kept = [axis for axis in axes if axis[0] in labels]
        times = math.prod(size for label, size in axes if label not in labels)
        if node.kind == "sum":
            found = [(times * factor, arg) for factor, arg in self._entries(cell)]
            return self.total((factor, self.sum_over(arg, kept)) for factor, arg in found)
        if not kept:
            return self.total([(times, cell)])
        present = [label for label, _ in kept]
        factors = self.factors(cell)
        outside = [factor for factor in factors if set(terms.labels(factor)).isdisjoint(present)]
        if outside:
            inside = self.product(factor for factor in factors if factor not in outside)
            return self.total([(times, self.product([*outside, self.sum_over(inside, kept)]))])
        if node.kind == "over" and node.params == "add":
            _, (cell,), names = terms.open(cell)
            present += names[: node.bound]
        return self.total([(times, terms.make("over", "add", [cell], ends=set(present)))])

    # --- exponentials: exp(a + b) is exp(a) * exp(b), and a product has at most one of each term ---
    # A running maximum that is subtracted before exponentials and added back after them drops out.

    def _exponential(self, cell: int) -> int:
        """Returns ``exp(x)``, with ``exp(a + b) = exp(a) * exp(b)``; zero if x is minus infinity."""
        literal = self.literal(cell)
        if literal in ("-inf", "inf"):
            return self.zero if literal == "-inf" else cell
        return self.product([self._power(factor, term) for factor, term in self._entries(cell)])

    def _power(self, factor: Number, term: int) -> int:
        """Returns ``exp(factor * term)`` for a term that is not a sum; ``exp(n * log(x))`` is the n-th power of x."""
        node = self.terms.node(term)
        of_log = node.kind == "map" and node.params == "log"
        if of_log and isinstance(factor, int) and 0 < abs(factor) <= MOST_POWER:
            self.assumed[self.terms.term(term)] = None  # x is positive, or the term has no value
            (base,) = self.terms.open(term)[1]
            base = base if factor > 0 else self.reciprocal(base)
            return self.product([base] * abs(factor))
        return self.terms.make("map", "exponential", [self.total([(factor, term)])])

    def _powers(self, factors: Iterable[int]) -> tuple[dict[int, Number], list[int]]:
        """Returns the coefficient of each term in the exponents of factors, and the factors without an exponent."""
        powers: dict[int, Number] = {}
        others = []
        for cell in factors:
            node = self.terms.node(cell)
            if node.kind != "map" or node.params != "exponential":
                others.append(cell)
                continue
            for factor, term in self._entries(self.terms.open(cell)[1][0]):
                powers[term] = powers.get(term, 0) + factor
        return powers, others

    def _merge_exponentials(self, factors: Sequence[int]) -> list[int] | None:
        """Returns factors with one exponential for each term, ``exp(x) * exp(-x) = 1``; None if nothing changes."""
        powers, rest = self._powers(factors)
        if len(powers) == len(factors) - len(rest) and all(powers.values()):
            return None
        for term, power in powers.items():
            if power:
                rest.append(self._power(power, term))
            else:
                self.assumed[self.terms.term(term)] = None
        return rest

    def _logarithm(self, cell: int) -> int:
        """Returns ``log(x)``, with ``log(exp(a) * b) = a + log(b)``: b is positive if the product is."""
        number, rest = self.content(self._pulled(cell))
        powers, others = self._powers(self.factors(rest))
        if powers:
            cell = self.product([self.number(number), *others])
        log = self.zero if cell == self.one else self.terms.make("map", "log", [cell])
        return self.total([*((power, term) for term, power in powers.items()), (1, log)])

    def _pulled(self, cell: int) -> int:
        """Returns a cell with the exponentials that all terms of a sum share moved in front of the sum."""
        if self.terms.node(cell).kind == "prod":
            factors = self.factors(cell)
            made = [self._pulled(each) if self._is_sum(each) else each for each in factors]
            return cell if made == factors else self.product(made)
        if not self._is_sum(cell):
            return cell
        entries = [each for number, term in self._entries(cell) for each in self._expanded(number, term)]
        first, *others = [self._powers(factors)[0] for _, factors in entries]
        common = {
            term: power for term, power in first.items() if all(other.get(term) == power for other in others)
        }
        if not common:
            return cell
        inverse = [self._power(-power, term) for term, power in common.items()]
        inside = self.total((number, self.product([*factors, *inverse])) for number, factors in entries)
        return self.product([*(self._power(p, t) for t, p in common.items()), self._pulled(inside)])

    def _expanded(self, number: Number, term: int) -> Iterable[tuple[Number, list[int]]]:
        """Yields the terms of a product of exponentials and one sum after the sum is multiplied out."""
        factors = self.factors(term)
        sums = [each for each in factors if self._is_sum(each)]
        if len(sums) != 1 or not self._powers(factors)[0]:
            yield number, factors
            return
        others = [each for each in factors if each != sums[0]]
        for inner, part in self._entries(sums[0]):
            found, rest = self.content(self.product([*others, part]))
            yield from self._expanded(number * inner * found, rest)

    def _is_sum(self, cell: int) -> bool:
        node = self.terms.node(cell)
        return node.kind == "sum" and len(node.args) > 1

    def _entries(self, cell: int) -> list[tuple[Number, int]]:
        node = self.terms.node(cell)
        if node.kind != "sum":
            return [(1, cell)]
        return list(zip(node.params, self.terms.open(cell)[1], strict=True))

    # --- idempotent and commutative functions: maximum, minimum, and, or ---

    def extreme(self, name: str, cells: Iterable[int], sort: str = REAL) -> int:
        """Returns the maximum, minimum, conjunction or disjunction of a set."""
        terms, cells = self.terms, list(cells)
        found: dict[int, None] = {}
        if sort == BOOL and (table := self._tabulated(name, cells, sort, None)) is not None:
            return table
        for cell in cells:
            node = terms.node(cell)
            if node.kind == "extreme" and node.params == name:
                found |= dict.fromkeys(terms.open(cell)[1])
            elif self.literal(cell) == ABSORBING[name] and sort == BOOL:
                return cell
            elif self.literal(cell) != NEUTRAL[name]:
                found[cell] = None
        if not found:
            return self.constant(NEUTRAL[name], sort)
        distinct = list(found)
        if len(distinct) == 1:
            return distinct[0]
        order = terms.ordered(distinct)
        return terms.make("extreme", name, [distinct[i] for i in order], sort)

    def extreme_over(self, name: str, cell: int, labels: Sequence[Label], sort: str = REAL) -> int:
        """Returns the maximum, minimum, conjunction or disjunction along labels."""
        terms = self.terms
        node = terms.node(cell)
        present = [label for label in labels if label in terms.labels(cell)]
        if not present:
            return cell
        if node.kind == "extreme" and node.params == name:
            parts = [self.extreme_over(name, arg, present, sort) for arg in terms.open(cell)[1]]
            return self.extreme(name, parts, sort)
        if node.kind == "over" and node.params == name:
            _, (cell,), names = terms.open(cell)
            present += names[: node.bound]
        return terms.make("over", name, [cell], sort, ends=set(present))

    # --- constants ---

    def constant(self, value: bool | int | str, sort: str) -> int:
        """Returns an integer, a boolean, or a real word: ``inf``, ``-inf``, ``nan``."""
        if isinstance(value, str):
            return self.terms.leaf("word", value)
        if sort == REAL:
            return self.number(value)
        return self.terms.leaf("const", wrap(value, sort), sort=sort)

    def element(self, value: float | int | bool | str, sort: str) -> int:
        """Returns the constant for one element of a program's constant; a NaN may be given by its bits, as text."""
        if sort != REAL:
            return self.constant(int(value), sort)
        if isinstance(value, str) or value != value:
            return self.constant("nan", REAL)
        if math.isfinite(value):
            return self.number(Fraction(value))
        return self.constant("inf" if value > 0 else "-inf", REAL)

    def literal(self, cell: int) -> bool | int | str | None:
        """Returns the argument that `constant` was called with; None for another cell."""
        node = self.terms.node(cell)
        return node.params if node.kind in ("const", "word") else None

    # --- functions, element by element ---

    def map(self, name: str, cells: Sequence[int], sort: str = REAL, detail: Hashable = None) -> int:
        """Returns a function of cells, element by element; folds integers and booleans.

        Args:
            name: name of the operation, without its dialect.
            detail: content of the operation's attributes.
        """
        if sort != REAL and (table := self._tabulated(name, cells, sort, detail)) is not None:
            return table
        match name:
            case "select":
                return self._select(cells[0], cells[1], cells[2], sort)
            case "convert":
                return self._convert(cells[0], self.terms.node(cells[0]).sort, sort)
            case "exponential":
                return self._exponential(cells[0])
            case "log":
                return self._logarithm(cells[0])
            case "abs" if sort == REAL and self.definedness.sign(self.terms.term(cells[0])):
                return cells[0]  # it is never negative
            case "sqrt" | "rsqrt" if sort == REAL and (root := self._root(name, cells[0])) is not None:
                return root
        return self._folded(name, cells, sort, detail)

    def _tabulated(self, name: str, cells: Sequence[int], sort: str, detail: Hashable) -> int | None:
        """Returns a function of one integer of known range as a table; None for all other functions."""
        found = self.tables.tabulate(name, cells, list(map(self.literal, cells)), sort, detail)
        return None if found is None else self._table(*found, sort)

    def _table(self, base: int, low: int, values: tuple[Any, ...], sort: str) -> int:
        """Returns the table of a cell: a constant if all values are equal, the cell if the table is the identity."""
        if all(value == values[0] for value in values):
            return self.constant(values[0], sort)
        literal = self.literal(base)
        if literal is not None:
            return self.constant(values[int(literal) - low], sort)
        if sort == self.terms.node(base).sort and values == tuple(range(low, low + len(values))):
            return base
        return self.terms.make("map", ("table", (low, values)), [base], sort)

    def _root(self, name: str, cell: int) -> int | None:
        """Returns the root of a constant if it is rational, such as for a head's width."""
        value = self.value(cell)
        if value is None or value <= 0:
            return None
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        return self.number(root if name == "sqrt" else 1 / root) if root * root == value else None

    def _folded(self, name: str, cells: Sequence[int], sort: str, detail: Hashable) -> int:
        known = [self.literal(cell) for cell in cells]
        sorts = [self.terms.node(cell).sort for cell in cells]
        if name == "compare" and sorts[0] == REAL:
            known = [self.value(cell) for cell in cells]
            if known[1] == 0 and (sure := self._beside_zero(cells[0], str(detail))) is not None:
                return self.constant(sure, BOOL)
        if all(value is not None for value in known) and (name == "compare" or REAL not in (*sorts, sort)):
            value = fold(name, known, sort, detail)
            if value is not None:
                return self.constant(value, sort)
        cells = list(cells)
        if name in COMMUTING:
            cells = [cells[i] for i in self.terms.ordered(cells)]
        return self.terms.make("map", (name, detail) if detail is not None else name, cells, sort)

    def _beside_zero(self, cell: int, direction: str) -> bool | None:
        """Returns the comparison of a term of known sign with zero; None if unknown."""
        term = self.terms.term(cell)
        sure = SURE[self.definedness.sign(term)].get(direction)
        if sure is not None:
            self.assumed[term] = None  # else every comparison is false
        return sure

    def _select(self, chosen: int, yes: int, no: int, sort: str) -> int:
        if (literal := self.literal(chosen)) is not None:
            return yes if literal else no
        if sort == BOOL and (self.literal(yes), self.literal(no)) == (True, False):
            return chosen
        first, second = (self.value(yes), self.value(no)) if sort == REAL else (None, None)
        if first is not None and second is not None:
            return self.total([(second, self.one), (first - second, self._convert(chosen, BOOL, REAL))])
        return yes if yes == no else self.terms.make("map", "select", [chosen, yes, no], sort)

    def _convert(self, cell: int, source: str, target: str) -> int:
        if source == target:
            return cell
        if source == REAL:
            if (value := self._known(cell)) is not None:
                return self.constant(saturate(value, target), target)
        elif (literal := self.literal(cell)) is not None:
            return self.constant(int(literal), target)
        return self.terms.make("map", ("convert", source, target), [cell], target)

    def narrowed(self, cell: int, element: str) -> int:
        """Returns a real number as represented in a float element type: constants beyond its range change."""
        value = self._known(cell)
        if value is None or in_range(value, element):
            return cell
        return self.element(rounded(value, element), REAL)

    def _known(self, cell: int) -> Number | str | None:
        value = self.value(cell)
        return self.literal(cell) if value is None else value

    def rebuild(self, node: Node, args: Sequence[int], names: Sequence[Label], fresh: Sequence[Axis]) -> int:
        """Returns the normal form of a node with other arguments; only axes that it does not refer to have changed.

        Args:
            args: the new arguments.
            names: the label of every number, as `Terms.open` gives them.
            fresh: the axes that begin at the node.
        """
        bound = names[: node.bound]
        if node.kind == "sum":
            return self.total(zip(node.params, args, strict=True))
        if node.kind == "prod":
            return self.product(args)
        if node.kind == "extreme":
            return self.extreme(node.params, args, node.sort)
        if node.kind == "over" and node.params == "add":
            ((term, where),) = node.args
            sizes = dict(zip(where, self.terms.nodes[term].shape, strict=True))
            return self.sum_over(args[0], [(label, sizes[number]) for number, label in enumerate(bound)])
        if node.kind == "over":
            return self.extreme_over(node.params, args[0], bound, node.sort)
        if node.kind != "map":
            return self._moved(node, args, bound, fresh)
        name, *detail = (node.params,) if isinstance(node.params, str) else node.params
        if name == "reciprocal":
            return self.reciprocal(args[0])
        if name == "convert":
            return self._convert(args[0], detail[0], detail[1])
        if name == "table":
            low, values = detail[0]
            return self._table(args[0], low, values, node.sort)
        return self.map(name, args, node.sort, detail[0] if detail else None)

    def _moved(self, node: Node, args: Sequence[int], roles: Sequence[Label], fresh: Sequence[Axis]) -> int:
        """Returns the normal form of a node that moves elements, or that is opaque."""
        held = {label for arg in args for label in self.terms.labels(arg)}
        if node.kind in ("take", "reshape") and held.isdisjoint(roles):
            return args[0]  # uniform along an axis that it has lost
        if node.kind not in ("put", "fold"):
            return self.terms.make(node.kind, node.params, args, node.sort, ends=roles, fresh=fresh)
        if not held.issuperset(roles):
            raise RefusalError(f"{node.kind}: got operands that are uniform along some of the axes that end")
        return self.terms.make(node.kind, node.params, args, node.sort, ends=set(roles), fresh=fresh)
