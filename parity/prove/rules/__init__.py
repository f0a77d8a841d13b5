"""Exact normaliser: rules that bring keys into one form before they are numbered.

A rule is a function with a `RewriteRule` as its decorator, in one of `MODULES`.
"""

from parity.prove.rules import contractions, elementwise, floats, literals, logic, moves, terms, weight_views
from parity.prove.rules.numbering import RuledNumbering, shared_alike
from parity.prove.rules.registry import RULES, RewriteRule
from parity.prove.rules.terms import Terms

__all__ = ["EXACT", "LOOSE", "MODULES", "RULES", "RewriteRule", "RuledNumbering", "Terms", "shared_alike"]

MODULES = (contractions, elementwise, floats, literals, logic, moves, terms, weight_views)
"""The modules whose import registers the rules."""
EXACT: frozenset[str] = frozenset(name for name, rule in RULES.items() if not rule.loose)
"""The rules of ``proved``."""
LOOSE: frozenset[str] = frozenset(RULES)
"""The rules of ``reordered``: all of them."""
