"""Values behind numbers, as far as rules know them: views of flat values, folded constants, terms without shapes."""

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from parity.prove.numbering import Table
from parity.prove.rules.registry import BY_VALUE, NARROW, RULES, RewriteRule
from parity.prove.rules.types import Array, is_whole_number, numpy_type
from parity.prove.rules.views import View, whole

_GIVEN = ("#argument ", "#hoisted ", "#moved ", "#part ", "#real ", "#literal")
_TABLES = ("#literals", "#repeated", "stablehlo.constant ")
_POWERS = ("exponential", "power")
_SUMS = ("add", "subtract")
_NO_POWERS = ("tanh", "logistic", "log", "log_plus_one", "sine", "cosine", "compare")
"""Operations whose results no simplification makes a power; nor sums, except of zero."""
FOLDED = 1 << 14
"""Maximum number of elements of an integer or boolean array that is folded."""


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """An array as the rules see it: its type, and a view of a flat source."""

    view: View
    type: Array


@dataclasses.dataclass(frozen=True, slots=True)
class Application:
    """An operation that is about to be numbered: attributes, all known to the rules, type of the result, operands."""

    attributes: Mapping[str, Any]
    out: Array
    operands: Sequence[Value]


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """An operation as the rules rewrite and build it, with its operands as views.

    Args:
        name: name of the operation, without its dialect.
        note: its attributes as text; for ``compare`` the direction and the kind of order.
        operands: views, each of as many elements as the result; for ``concatenate`` the parts.
        elements: types of the operands' elements.
        element: type of the result's elements.
        commutes: True if its two operands may be exchanged.
    """

    name: str
    note: str
    operands: tuple[View, ...]
    elements: tuple[str, ...]
    element: str
    commutes: bool = False


class Terms(Table):
    """A table that also stores the terms built by rules.

    Args:
        enabled: names of the rules that may be used.

    Attributes:
        normal: for each operation, by its word and operands, the number of its normal form, whether rules removed it,
            and the number of uses of each rule.
        narrow: True while an operation on floats of fewer than 32 bits is numbered.
        ordered, moved: True while an operation is numbered that is one of these; see `Fusions`.
        certain: True while an operation is numbered whose first operand is known to compilers.
        built: True if the operation that is being numbered is still present in its normal form.
        reshaped: moved floats: the source, and the shape in which it was computed, or its last move as text.
        folded: elements of known integers and booleans by number.
        tables: integers computed from one remainder: its number, and their values for each value that it can have.
        tabled: the first of the integers with each table.
        reals: known floats by number, none of them NaN or too small for a normal f32.
    """

    def __init__(self, enabled: Collection[str]) -> None:
        super().__init__()
        self.enabled = frozenset(enabled)
        kept = {name for name, rule in RULES.items() if rule.keeps_narrow or NARROW in self.enabled}
        self._on_narrow = self.enabled & kept
        self.normal: dict[tuple, tuple[int, bool, Mapping[str, int]]] = {}
        self.narrow = self.ordered = self.moved = self.certain = self.built = False
        self.values: dict[int, Value] = {}
        self.terms: dict[int, Term] = {}
        self.reshaped: dict[int, tuple[int, tuple[int, ...] | str]] = {}
        self.folded: dict[int, np.ndarray] = {}
        self.reals: dict[int, float] = {}
        self.tables: dict[int, tuple[int, np.ndarray]] = {}
        self.tabled: dict[tuple, int] = {}
        self._powers: list[bool] = []

    @RewriteRule(
        name=NARROW,
        rewrites="bf16, f16 and f8 by the rules that leave these alone",
        condition="as for each rule",
        argument="As for each rule; but the CPU compiler computes these in f32 and drops a rounding between "
        "neighbours, which an operation in between, even one that changes nothing, keeps.",
        attacked_by="cast before or after reshape",
        loose=True,
    )
    def allows(self, rule: str) -> bool:
        """True if a rule may be used on the operation that is being numbered."""
        return rule in self.enabled and (not self.narrow or rule in self._on_narrow)

    def accept(self, rule: str, view: View | None) -> View | None:
        """Returns what a rule made, and counts its use; None if it made nothing or may not be used."""
        return view if view is not None and self.applies(rule) else None

    def applies(self, rule: str) -> bool:
        """True if a rule may be used; counts as a use of it."""
        allowed = self.allows(rule)
        if allowed:
            self.use(rule)
        return allowed

    def use(self, rule: str) -> None:
        """Counts one use of a rule."""
        self.used[rule] += 1
        if self.narrow and not RULES[rule].keeps_narrow:
            self.used[NARROW] += 1

    def value(self, number: int, kind: Array) -> Value:
        """Returns the value of a number with its type; an unknown number is a view of itself."""
        found = self.values.get(number)
        if found is None:
            found = self.values[number] = Value(whole(number, kind.count), kind)
        return found

    def shaped(self, value: Value) -> int:
        """Returns the number of an array, which is determined by its view and its type."""
        view, kind = value.view, value.type
        base = self.values.get(view.source)
        if base is not None and base.type == kind and view.is_whole and base.view.source == view.source:
            return view.source
        number = self.number(f"#view {kind.shape} {view.offset} {view.factors} of {view.size}", view.source)
        self.values[number] = value
        return number

    def flat(self, view: View) -> int:
        """Returns the number of a view's elements in order, regardless of their shape."""
        if view.is_whole:
            return view.source
        return self.number(f"#flat {view.offset} {view.factors} of {view.size}", view.source)

    def term(self, term: Term, count: int, more: str = "") -> View:
        """Returns an operation of some elements as a view of itself; further text distinguishes it from others."""
        word = f"~{term.name} {term.note} {term.element} {count}{more}"
        number = self.number(word, *[self.flat(view) for view in term.operands])
        self.terms.setdefault(number, term)
        self.built = True
        return whole(number, count)

    @RewriteRule(
        name=BY_VALUE,
        rewrites="a constant, an iota and a broadcast constant of equal integers -> one value; a constant that is "
        "computed outside of a call, loop or branch -> inside",
        condition="any",
        argument="But compilers compute with constants, and round differently.",
        attacked_by="mask from a table or counted",
        loose=True,
        keeps_narrow=True,
    )
    def constant(self, data: np.ndarray, element: str) -> View:
        """Returns folded integers or booleans; one element if all are equal."""
        data = np.ascontiguousarray(data).reshape(-1)
        count = data.size
        equal = bool((data == data[0]).all())
        kept = data[:1] if equal else data
        text = str(int(data[0])) if equal else hashlib.blake2b(kept.tobytes(), digest_size=20).hexdigest()
        number = self.number(f"#folded {element} {kept.size} {text}")
        self.folded[number] = kept
        return View(number, 1, 0, ((count, 0),) if count > 1 else ()) if equal else whole(number, count)

    def repeated(self, view: View) -> View:
        """Returns a view of a constant after a broadcast, which XLA does not compute when it compiles."""
        if view.is_splat or not self.is_table(view) or self.nodes[view.source][0] == "#repeated":
            return view
        return dataclasses.replace(view, source=self.number("#repeated", view.source))

    def is_table(self, view: View) -> bool:
        """True for elements of a constant that is not one number everywhere, also after a broadcast."""
        data = self.folded.get(view.source)
        found = self.nodes[view.source][0].startswith(_TABLES) if data is None else data.size > 1
        return found and not self.is_by_value()

    def is_by_value(self) -> bool:
        """True if integers are equated by their values only; counts as a use of that rule."""
        return self.applies(BY_VALUE)

    def literal(self, view: View) -> np.ndarray | None:
        """Returns the elements of a view of a folded array; None if it is not folded, or too large."""
        data = self.folded.get(view.source)
        if data is None or view.count > FOLDED:
            return None
        return data[view.places()]

    def scalar(self, view: View) -> int | None:
        """Returns the integer that all elements of a view equal; None if there is no such known integer."""
        data = self.folded.get(view.source)
        return int(data[view.offset]) if data is not None and view.is_splat else None

    def make_real(self, value: float, element: str) -> View:
        """Returns a float that is not NaN as one element."""
        number = self.number(f"#real {element} {value.hex()}")
        self.reals[number] = value
        return whole(number, 1)

    def plain(self, view: View) -> View:
        """Returns a view of a float regardless of the shape in which the float was computed."""
        known = self.reshaped.get(view.source)
        return dataclasses.replace(view, source=known[0]) if known else view

    def is_given(self, number: int) -> bool:
        """True if no operation computes a value. A loop of one turn vanishes, so a carry may be a product."""
        return self.nodes[number][0].startswith(_GIVEN)

    def may_swap(self, left: View, right: View) -> bool:
        """True if operands may be read in another order: always if one of them is one known number."""
        return not self.ordered or self.known(left) is not None or self.known(right) is not None

    def is_power(self, number: int) -> bool:
        """True if XLA may make a value a power or an exponential; it adds the exponents of two that are multiplied."""
        for word, *operands in self.nodes[len(self._powers) : number + 1]:
            name = word.removeprefix("~").partition(" ")[0].removeprefix("stablehlo.")
            stops = name in _NO_POWERS or (name in _SUMS and not any(map(self.is_given, operands)))
            self._powers.append(
                name in _POWERS or (not stops and any(self._powers[each] for each in operands))
            )
        return self._powers[number]

    def real(self, view: View) -> float | None:
        """Returns the float that all elements of a view equal; None if it is NaN or not known."""
        return self.reals.get(view.source) if view.is_splat else None

    def known(self, view: View) -> float | None:
        """Returns the number that all elements of a view equal, integer or float; None if it is not known."""
        value = self.real(view)
        return self.scalar(view) if value is None else value

    def settled(self, view: View, element: str) -> View:
        """Returns a view; a view of a folded array is replaced by its elements."""
        if view.source not in self.folded or view.is_splat or view.is_whole:
            return view
        data = self.literal(view)
        if data is None or ((data == data[0]).all() and self.is_table(view)):
            return view
        is_known = is_whole_number(element) and numpy_type(element) is not None
        return self.constant(data, element) if is_known else view
