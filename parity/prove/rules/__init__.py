"""The exact normaliser: rules that bring keys into one form before they are numbered."""

from parity.prove.rules.numbering import RuledNumbering
from parity.prove.rules.registry import EXACT, LOOSE, RULES, RewriteRule
from parity.prove.rules.sharing import shared_alike
from parity.prove.rules.terms import Terms

__all__ = ["EXACT", "LOOSE", "RULES", "RewriteRule", "RuledNumbering", "Terms", "shared_alike"]
