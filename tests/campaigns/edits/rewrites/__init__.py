"""Rewriting rules that preserve meaning: small and named, each with the condition under which it is harmless.

A rule finds places in a source by its tree, and rewrites the text there, so that a patch looks like an edit by hand.
Gives: `RULES`, `Rule`, `Source`, `Patch`, `patched`.
"""

from campaigns.edits.rewrites import calls, expressions, layout, names, statements
from campaigns.edits.rewrites.rule import Rule
from campaigns.edits.rewrites.source import Patch, Source, patched

__all__ = ["RULES", "Patch", "Rule", "Source", "patched"]

RULES = (*layout.RULES, *names.RULES, *statements.RULES, *expressions.RULES, *calls.RULES)
