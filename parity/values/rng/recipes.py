"""Provenance of the leaves of an initial state, read from the traced program: equal provenance means equal numbers.

Every value of a program has a number determined by its operation and the numbers of the operands. Two values with one
number are equal for every key. A value that cannot be followed has a separate number, which equals no other.
"""

import functools
import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from parity.builds.tree import is_key
from parity.ir.interpreter import Interpreter, Position
from parity.ir.jax_internals import scan_split
from parity.ir.jaxprs import bodies, is_call, opened
from parity.values.rng.demand import DRAWS

KEY = ("a key",)
"""Loose content of all keys derived from the program's key."""
AS_IT_IS = frozenset({"random_clone", "name", "copy"})
"""Operations that return their operands."""
_text = functools.lru_cache(maxsize=4_096)(str)


class LeafProvenance(NamedTuple):
    """Provenance of a value.

    Args:
        exact: values with equal numbers are equal.
        loose: like ``exact``, regardless of the keys drawn from. Values with equal numbers have the same distribution
            if they draw once.
        draws: the draws in it, by their exact numbers.
        keyed: True if it may depend on the program's key.
    """

    exact: int
    loose: int
    draws: frozenset[int]
    keyed: bool


class Recipes(Interpreter):
    """Provenance of the results of programs to be compared; numbers of one instance mean nothing in another."""

    def __init__(self):
        self._numbers: dict[Hashable, int] = {}
        self._layers: dict[int, int] = {}
        self._scalars: set[int] = set()
        self._unknown = 0
        self._depth = 0
        self._key = self._number(KEY)

    def of(self, traced: Any, names: Sequence[str]) -> dict[str, LeafProvenance]:
        """Returns the provenance of each result of a program of one key."""
        key = self._made(("the key",), KEY, frozenset(), keyed=True)
        return dict(zip(names, self.body(traced, [key], Position()), strict=True))

    def distribution(self, recipes: Iterable[LeafProvenance]) -> int | None:
        """Returns the number that identifies the distribution of some leaves, including layers of stacks.

        None if there is not exactly one, or if a leaf is made from several draws, which may depend on each other.
        """
        found = {self._layer(recipe) if len(recipe.draws) <= 1 else None for recipe in recipes}
        return found.pop() if len(found) == 1 else None

    def is_constant(self, number: int | None) -> bool:
        """True if a number of `distribution` is one scalar that fills every leaf."""
        return number in self._scalars

    def _layer(self, recipe: LeafProvenance) -> int:
        """Returns the loose number of the layers of a stack, or of a stack of stacks."""
        number = recipe.loose
        while number in self._layers:
            number = self._layers[number]
        return number

    def _derived(self, recipe: LeafProvenance, content: Hashable) -> Hashable:
        """Returns the loose content of a key made from ``recipe``: `KEY` if it derives from the program's key."""
        return KEY if self._layer(recipe) == self._key else content

    def _number(self, content: Hashable) -> int:
        return self._numbers.setdefault(content, len(self._numbers))

    def _made(
        self, exact: Hashable, loose: Hashable, draws: frozenset[int], *, keyed: bool
    ) -> LeafProvenance:
        return LeafProvenance(self._number(exact), self._number(loose), draws, keyed)

    def _like_no_other(self) -> tuple[str, int]:
        self._unknown += 1
        return "unknown", self._unknown

    def constant(self, value: Any) -> LeafProvenance:
        weak = getattr(getattr(value, "aval", None), "weak_type", not hasattr(value, "dtype"))
        if is_key(value):
            unknown = self._like_no_other()
            return self._made(unknown, unknown, frozenset(), keyed=False)
        array = np.asarray(value)
        digest = hashlib.sha256(array.tobytes()).digest()
        content = ("constant", str(array.dtype), array.shape, digest, bool(weak))
        made = self._made(content, content, frozenset(), keyed=False)
        if not array.shape:
            self._scalars.add(made.loose)
        return made

    def intercept(
        self, equation: Any, inputs: list[LeafProvenance], here: Position
    ) -> list[LeafProvenance] | None:
        name = equation.primitive.name
        if name == "scan":
            return self._scan(equation, inputs, here)
        if is_call(equation):
            return None
        if name in AS_IT_IS:
            return inputs
        how = self._number((name, self._content(equation.params)))
        exact = [recipe.exact for recipe in inputs]
        loose = [recipe.loose for recipe in inputs]
        draws = frozenset().union(*(recipe.draws for recipe in inputs))
        keyed = any(recipe.keyed for recipe in inputs)
        takes_key = any(is_key(variable.aval) for variable in equation.invars)
        made = []
        for place, variable in enumerate(equation.outvars):
            shape = (place, _text(variable.aval))
            one = self._number((how, shape, *exact))
            like: Hashable = (how, shape, *loose)
            if is_key(variable.aval):
                like = self._like_no_other()  # such as a key made from a number in the source
                like = self._derived(inputs[0], like) if inputs else like
            elif takes_key and name not in DRAWS:
                like = self._like_no_other()
            drawn = draws | {one} if name in DRAWS else draws
            made.append(LeafProvenance(one, self._number(like), drawn, keyed))
        if name == "transpose":
            self._turned(made[0], inputs[0], equation.params["permutation"])
        if name == "broadcast_in_dim" and self.is_constant(self._layer(inputs[0])):
            self._layers[made[0].loose] = inputs[0].loose
        return made

    def _turned(self, turned: LeafProvenance, stack: LeafProvenance, permutation: Sequence[int]) -> None:
        """Records a stack whose layers are along another axis."""
        within = [axis for axis in permutation if axis != 0]
        if stack.loose in self._layers and within == sorted(within):
            self._layers[turned.loose] = self._layers[stack.loose]

    def _scan(self, equation: Any, inputs: list[LeafProvenance], here: Position) -> list[LeafProvenance]:
        """Follows the values that each iteration makes alone; carries are not followed."""
        (body,), (constants, carries) = bodies(equation), scan_split(equation)
        loop_indices = ("turns", equation.params["length"], equation.params["reverse"])
        variables = opened(body).invars
        given = list(inputs[:constants])
        common = frozenset().union(*(recipe.draws for recipe in given))
        keyed = any(recipe.keyed for recipe in inputs)
        for place, recipe in enumerate(inputs[constants:], constants):
            row: Hashable = self._like_no_other()
            loose = row
            if (
                place >= constants + carries
            ):  # identifies the loop: a loop around this one may scan the same rows
                row, loose = (
                    ("row", self._depth, *loop_indices, whole) for whole in (recipe.exact, recipe.loose)
                )
            if is_key(variables[place].aval):
                loose = self._derived(recipe, self._like_no_other())
            within = keyed if place < constants + carries else recipe.keyed
            given.append(self._made(row, loose, recipe.draws, keyed=within))
        self._depth += 1
        results = self.body(body, given, here)
        self._depth -= 1
        ends = [
            self._made(end, self._derived(recipe, end), recipe.draws, keyed=keyed)
            for recipe, end in ((recipe, self._like_no_other()) for recipe in results[:carries])
        ]
        keeps = all(
            left.loose != self._key or self._layer(right) == self._key
            for left, right in zip(given[constants : constants + carries], results, strict=False)
        )
        return ends + [self._stack(recipe, loop_indices, keeps, common) for recipe in results[carries:]]

    def _stack(
        self, layer: LeafProvenance, loop_indices: Hashable, keeps: bool, common: frozenset[int]
    ) -> LeafProvenance:
        """Returns the stack that a loop makes, iteration by iteration.

        Args:
            layer: provenance of the value that one iteration makes.
            keeps: True if the keys that the loop carries stay derived from the program's.
            common: draws outside of the loop; layers that all use one of them depend on each other.
        """
        differing = keeps and not layer.draws & common
        loose = ("stack", loop_indices, layer.loose) if differing else self._like_no_other()
        stack = self._made(("stack", loop_indices, layer.exact), loose, layer.draws, keyed=layer.keyed)
        if differing:
            self._layers[stack.loose] = layer.loose
        return stack

    def _content(self, value: Any) -> Hashable:
        """Returns a hashable form of a parameter; equal forms have the same meaning."""
        if isinstance(value, Mapping):
            return tuple((name, self._content(value[name])) for name in sorted(value))
        if isinstance(value, tuple | list):
            return (type(value).__name__, *map(self._content, value))
        if isinstance(value, float):
            return "float", value.hex()
        try:
            return type(value).__name__, self._number(("object", type(value).__name__, value))
        except TypeError:  # not hashable
            return self._like_no_other()
