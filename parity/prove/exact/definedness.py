"""Terms that are defined for all inputs: ``0 * x`` is zero only if x is a number."""

from collections.abc import Iterable
from typing import Any

from parity.ir.stablehlo.operations import FUNCTIONS
from parity.prove.exact.terms import REAL, Terms

__all__ = ["Definedness"]

PASSING = frozenset({"over", "concat", "reshape", "slice", "at", "take"})
"""Kinds whose values are those of their arguments, or sums of them."""
ONE = 0x3F800000
"""The bits of 1 in float32."""
EXPONENT_BITS = 9
"""The sign and exponent bits of float32."""


class Definedness:
    """Finds the terms that may have no value in the real numbers.

    Args:
        terms: the table.
    """

    def __init__(self, terms: Terms):
        self.terms = terms
        self._undefined: dict[int, frozenset[int]] = {}
        self._signs: dict[int, str] = {}

    def all_undefined(self, wanted: Iterable[int]) -> set[int]:
        """Returns the union of `undefined` over all terms."""
        found: set[int] = set()
        for term in wanted:
            found |= self.undefined(term)
        return found

    def undefined(self, term: int) -> frozenset[int]:
        """Returns the subterms of a term, including itself, that may have no value if their arguments have."""
        stack = [term]
        while stack:
            top = stack[-1]
            if top in self._undefined:
                stack.pop()
                continue
            node = self.terms.nodes[top]
            waiting = [arg for arg, _ in node.args if arg not in self._undefined]
            if waiting:
                stack += waiting
                continue
            found = frozenset().union(*(self._undefined[arg] for arg, _ in node.args))
            self._undefined[top] = found if self._total(top) else found | {top}
            stack.pop()
        return self._undefined[term]

    def _total(self, term: int) -> bool:
        """True if the function at the head of a term has a value whenever its arguments have."""
        node = self.terms.nodes[term]
        if node.kind == "word":
            return False
        if node.kind != "map" or node.sort != REAL:
            return True
        name = node.params if isinstance(node.params, str) else node.params[0]
        if name in FUNCTIONS and FUNCTIONS[name].total:
            return True
        if name == "bitcast_convert":
            return self._is_mantissa(node.args[0][0])
        sign = self.sign(node.args[0][0])
        if name in ("reciprocal", "rsqrt", "log"):
            return sign == "positive"
        if name == "power":
            return sign == "positive"
        return name == "sqrt" and sign != ""

    def _is_mantissa(self, term: int) -> bool:
        """True if bits are those of a float32 from 1 to 2 with a random mantissa, as random numbers are made."""
        node = self.terms.nodes[term]
        args = {self.terms.nodes[arg].params: arg for arg, _ in node.args}
        shifted = args.get("shift_right_logical")
        if node.kind != "map" or node.params != "or" or ONE not in args or shifted is None:
            return False
        by = self.terms.nodes[self.terms.nodes[shifted].args[1][0]]
        return by.kind == "const" and by.params == EXPONENT_BITS

    def is_fraction(self, term: int) -> bool:
        """True if a term is such a float32 less 1, which is exact."""
        node = self.terms.nodes[term]
        inner = [self.terms.nodes[arg] for arg, _ in node.args]
        bits = [x.args[0][0] for x in inner if x.kind == "map" and x.params == ("bitcast_convert", "f32")]
        one = sorted(zip(node.params, [x.kind for x in inner], strict=True)) if node.kind == "sum" else []
        return one == [(-1, "one"), (1, "map")] and len(bits) == 1 and self._is_mantissa(bits[0])

    def sign(self, term: int) -> str:
        """Returns ``positive``, ``nonnegative``, or an empty string if the sign is unknown."""
        if term not in self._signs:
            self._signs[term] = ""
            self._signs[term] = self._sign(term)
        return self._signs[term]

    def _sign(self, term: int) -> str:
        node = self.terms.nodes[term]
        args = [arg for arg, _ in node.args]
        if node.sort != REAL:
            return ""
        if node.kind == "one":
            return "positive"
        if node.kind == "map":
            return self._sign_of_map(node.params, args)
        if node.kind == "sum":
            if any(factor <= 0 for factor in node.params):
                return ""
            return self._least(args, any) if args else "nonnegative"
        if node.kind == "prod":
            return self._sign_of_product(node.args)
        if node.kind == "extreme" and node.params == "maximum":
            return "positive" if any(self.sign(arg) == "positive" for arg in args) else ""
        if node.kind in PASSING and node.params != "maximum":
            return self._least(args[:1] if node.kind == "take" else args, all)
        return ""

    def _sign_of_product(self, factors: tuple) -> str:
        distinct = set(factors)
        odd = [arg for arg, where in distinct if factors.count((arg, where)) % 2]
        signs = [self.sign(arg) for arg in odd]
        if "" in signs:
            return ""
        return "nonnegative" if len(odd) < len(distinct) or "nonnegative" in signs else "positive"

    def _least(self, args: list[int], enough: object) -> str:
        signs = [self.sign(arg) for arg in args]
        if "" in signs:
            return ""
        positive = [sign == "positive" for sign in signs]
        return "positive" if (any(positive) if enough is any else all(positive)) else "nonnegative"

    def _sign_of_map(self, params: Any, args: list[int]) -> str:
        name = params if isinstance(params, str) else params[0]
        if name in ("reciprocal", "rsqrt", "power"):
            return "positive" if self.sign(args[0]) == "positive" else ""
        if name in ("abs", "sqrt"):
            return self.sign(args[0]) or FUNCTIONS[name].sign
        if name == "select":
            return self._least(args[1:], all)
        return FUNCTIONS[name].sign if name in FUNCTIONS else ""
