"""Branches: those whose choice is known, and the same choice written the other way round."""

from parity.prove.rules.logic import opposite_of
from parity.prove.rules.registry import RewriteRule
from parity.prove.rules.terms import Term, Terms, Value
from parity.prove.rules.types import Array

__all__ = ["branch"]


@RewriteRule(
    name="known-branch",
    rewrites="case of a known index -> the branch",
    condition="no side effects; the last branch is taken where the index is out of bounds",
    argument="The others do not run. XLA replaces such an operation by its branch before anything is fused.",
    attacked_by="branch by a constant",
    keeps_narrow=True,
)
@RewriteRule(
    name="opposite-branch",
    rewrites="case(not p, a, b) -> case(p, b, a)",
    condition="two branches without side effects",
    argument="Case by case.",
    attacked_by="branches exchanged",
    keeps_narrow=True,
)
def branch(table: Terms, index: int, count: int) -> tuple[int | None, list[int]] | None:
    """Returns the index of a branch in normal form and the branches in order; None for the index if one is known.

    Args:
        table: table in which terms are numbered.
        index: number of the index, a boolean or an integer.
        count: number of branches.
    """
    known = table.values.get(index)
    if known is None:
        return None
    value, kind = table.scalar(known.view), known.type
    if value is not None and kind.element != "i1" and table.allows("known-branch"):
        table.use("known-branch")
        return None, [value if 0 <= value < count else count - 1]
    term = table.terms.get(known.view.source)
    if count != 2 or term is None or term.name != "convert" or term.elements != ("i1",):
        return None
    if not known.view.is_whole or not table.allows("opposite-branch"):
        return None
    opposite = opposite_of(table, term.operands[0])
    if opposite is None or not opposite.is_whole:
        return None
    table.use("opposite-branch")
    made = table.term(Term("convert", term.note, (opposite,), term.elements), kind.element, 1)
    return table.shaped(Value(made, Array((), kind.element))), [1, 0]
