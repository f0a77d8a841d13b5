"""Registry of rules: each is data on the function that applies it.

A rule is a decorator. It names the rewriting, its condition, the argument why no bit changes, and the attack in the
tests that needs it. ``python tests/docs/generate.py`` writes the tables of ``docs/soundness.md`` from it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

NARROW = "narrow-floats"
"""The rule that allows other rules to act on floats of fewer than 32 bits."""
BY_VALUE = "integers-by-value"
"""The rule that equates known integers however the program has come by them."""
MOVED = "moved-weights"
"""The rule that views arguments and results through the transforms of the weight map."""

RULES: dict[str, "RewriteRule"] = {}
"""All rules by name."""
SIMPLIFICATIONS: dict[str, list[tuple["RewriteRule", Callable[..., Any]]]] = {}
"""The rules on each elementwise operation with their functions, tried in this order until none applies."""
NORMAL_FORMS: dict[str, Callable[..., Any]] = {}
"""The function that brings a whole operation into normal form, by operation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewriteRule:
    """One rule of the normaliser; as a decorator it registers the function that applies it.

    Args:
        name: the name in proofs.
        rewrites: the old and the new form.
        condition: condition for applying it.
        argument: the reason why no bit changes, for any input.
        attacked_by: an attack of ``tests/parity/prove/rewrites``: two forms whose proof needs the rule, and a third
            that misses its condition by one.
        on: the elementwise operations that the function simplifies; empty if other code of the normaliser calls it.
        loose: True if compiled programs may give other bits; then it serves the rung ``reordered`` only.
        keeps_narrow: True if it also keeps the bits of compiled bf16, f16 and f8; other rules need `NARROW` for these.
        function: the function that applies it, which the decorator fills in.
    """

    name: str
    rewrites: str
    condition: str
    argument: str
    attacked_by: str
    on: tuple[str, ...] = ()
    loose: bool = False
    keeps_narrow: bool = False
    function: Callable[..., Any] | None = None

    def __call__(self, function: _Function) -> _Function:
        """Registers a function as the one that applies this rule, and returns it.

        Raises:
            ValueError: if another rule has this name.
        """
        if self.name in RULES:
            raise ValueError(f"rule {self.name}: a rule of this name exists; choose another")
        RULES[self.name] = dataclasses.replace(self, function=function)
        for operation in self.on:
            SIMPLIFICATIONS.setdefault(operation, []).append((self, function))
        return function


def normal_form(operation: str) -> Callable[[_Function], _Function]:
    """Returns a decorator that registers a function as the normaliser of an operation."""

    def register(function: _Function) -> _Function:
        NORMAL_FORMS[operation] = function
        return function

    return register
