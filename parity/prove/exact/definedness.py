"""Terms that are defined for all inputs: ``0 * x`` is zero only if x is a number."""

import enum
from typing import Any

from parity.ir.stablehlo.operations import FUNCTIONS
from parity.prove.exact.terms import REAL, Terms

PASSING = frozenset({"over", "concat", "reshape", "take"})
"""Kinds whose values are those of their arguments, or sums of them."""
ONE = 0x3F800000
"""The bits of 1 in float32."""
EXPONENT_BITS = 9
"""The sign and exponent bits of float32."""


class Sign(enum.IntEnum):
    """The known sign of the values of a term; the smaller one is less to know."""

    UNKNOWN = 0
    NONNEGATIVE = 1
    POSITIVE = 2


class Definedness:
    """Finds the terms that may have no value in the real numbers."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self._undefined: list[frozenset[int]] = []
        self._signs: dict[int, Sign] = {}

    def undefined(self, term: int) -> frozenset[int]:
        """Returns the subterms of a term, including itself, that may have no value if their arguments have."""
        for number in range(len(self._undefined), term + 1):  # the arguments of a term have smaller numbers
            args = self.terms.nodes[number].args
            found = frozenset().union(*(self._undefined[arg] for arg, _ in args))
            self._undefined.append(found if self._total(number) else found | {number})
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
        if name in ("reciprocal", "rsqrt", "log", "power"):
            return sign is Sign.POSITIVE
        return name == "sqrt" and sign is not Sign.UNKNOWN

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

    def sign(self, term: int) -> Sign:
        """Returns the known sign of all values of a term."""
        if term not in self._signs:
            self._signs[term] = Sign.UNKNOWN
            self._signs[term] = self._sign(term)
        return self._signs[term]

    def _sign(self, term: int) -> Sign:
        node = self.terms.nodes[term]
        args = [arg for arg, _ in node.args]
        if node.sort != REAL:
            return Sign.UNKNOWN
        if node.kind == "one":
            return Sign.POSITIVE
        if node.kind == "map":
            return self._sign_of_map(node.params, args)
        if node.kind == "sum":
            added = all(factor > 0 for factor in node.params)
            signs = [self.sign(arg) if added else Sign.UNKNOWN for arg in args]
            return max(signs, default=Sign.NONNEGATIVE) if all(signs) else Sign.UNKNOWN
        if node.kind == "prod":
            distinct = set(node.args)
            odd = [self.sign(each[0]) for each in distinct if node.args.count(each) % 2]
            return min(odd) if len(odd) == len(distinct) else min([Sign.NONNEGATIVE, *odd])
        if node.kind == "extreme" and node.params == "maximum":
            return Sign.POSITIVE if Sign.POSITIVE in map(self.sign, args) else Sign.UNKNOWN
        if node.kind in PASSING and node.params != "maximum":
            return min(map(self.sign, args[:1] if node.kind == "take" else args))
        return Sign.UNKNOWN

    def _sign_of_map(self, params: Any, args: list[int]) -> Sign:
        name = params if isinstance(params, str) else params[0]
        if name == "select":
            return min(map(self.sign, args[1:]))
        known = FUNCTIONS[name].sign if name in FUNCTIONS else ""
        always = Sign[known.upper()] if known else Sign.UNKNOWN
        if name in ("reciprocal", "rsqrt", "power"):
            return Sign.POSITIVE if self.sign(args[0]) is Sign.POSITIVE else Sign.UNKNOWN
        return max(always, self.sign(args[0])) if name in ("abs", "sqrt") else always
