"""Readable descriptions of the place where two terms start to differ."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from parity.prove.exact.algebra import COMMUTING
from parity.prove.exact.terms import Node, RefusalError, Terms

__all__ = ["definitions", "explain", "where", "words"]

DEPTH = 3
CONSTANTS: dict[str, Callable[[Any], str]] = {
    "const": str,
    "word": str,
    "one": lambda _: "1",
    "float": lambda text: f"{float.fromhex(text):.6g}" if "p" in text else text,
}
MOST = 16
"""Number of a sum's arguments that are compared to find the matching pair."""


def explain(terms: Terms, reference: int, candidate: int) -> str:
    """Returns the innermost pair of terms at which two cells differ, the inputs of only one, and their source lines.

    Args:
        terms: the table.
        reference, candidate: cells.
    """
    left, right = terms.term(reference), terms.term(candidate)
    users = (left, right)
    while (inner := _inner(terms, left, right)) is not None:
        if terms.origins[left] and terms.origins[right]:
            users = (left, right)
        left, right = inner
    read = [inputs(terms, term) for term in (left, right)]
    lines = []
    sides = (("reference", left, users[0], *read), ("candidate", right, users[1], *read[::-1]))
    for side, term, user, own, other in sides:
        lines.append(f"  {side}: {words(terms, term)}")
        if only := sorted(own - other):
            more = f" and {len(only) - 4} more" if len(only) > 4 else ""
            lines.append(f"    only it reads {', '.join(only[:4])}{more}")
        used = "" if terms.origins[term] else f", used at {place(terms, user)}"
        lines.append(f"    made at {place(terms, term)}{used}")
    return "\n".join(lines)


def definitions(terms: Terms, undefined: Iterable[int]) -> tuple[str, ...]:
    """Returns the conditions that terms are defined, as text."""
    return tuple(sorted({f"{words(terms, term)} is defined" for term in undefined}))


def inputs(terms: Terms, term: int) -> set[str]:
    """Returns the inputs that a term reads, as text."""
    found: set[str] = set()
    seen, stack = {term}, [term]
    while stack:
        top = stack.pop()
        node = terms.nodes[top]
        if node.kind == "input" or (node.kind == "at" and _is_part(terms, top)):
            found.add(words(terms, top))
            continue
        for arg, _ in node.args:
            if arg not in seen:
                seen.add(arg)
                stack.append(arg)
    return found


def _is_part(terms: Terms, term: int) -> bool:
    """True if a term is one index of an input, or of such a part."""
    while terms.nodes[term].kind == "at":
        term = terms.nodes[term].args[0][0]
    return terms.nodes[term].kind == "input"


def _inner(terms: Terms, left: int, right: int) -> tuple[int, int] | None:
    """Returns differing arguments of two terms of one kind; None if no pair of arguments explains the difference."""
    a, b = terms.nodes[left], terms.nodes[right]
    if a.kind != b.kind or not a.args or not b.args:
        return None
    turned = a.kind == "map" and a.params == b.params and a.params in COMMUTING
    if a.kind in ("sum", "prod", "extreme") or turned:
        only = [
            [arg for arg, _ in node.args if arg not in {other for other, _ in against.args}]
            for node, against in ((a, b), (b, a))
        ]
        pairs = list(itertools.product(only[0][:MOST], only[1][:MOST]))
        of_a_kind = [(x, y) for x, y in pairs if terms.nodes[x].kind == terms.nodes[y].kind]
        if of_a_kind:
            return max(of_a_kind, key=lambda pair: _shared(terms, *pair))  # the first of the best
        return pairs[0] if len(only[0]) == len(only[1]) == 1 else None
    if len(a.args) != len(b.args) or a.params != b.params:
        return None
    unlike = [(x, y) for (x, _), (y, _) in zip(a.args, b.args, strict=True) if x != y]
    return unlike[0] if unlike else None


def _shared(terms: Terms, a: int, b: int) -> tuple[int, bool]:
    """Returns the number of arguments that two terms share, and whether their functions are equal."""
    left, right = ({arg for arg, _ in terms.nodes[term].args} for term in (a, b))
    return len(left & right), terms.nodes[a].params == terms.nodes[b].params


def words(terms: Terms, term: int, depth: int = DEPTH) -> str:
    """Returns a term as text, shortened."""
    node = terms.nodes[term]
    if node.kind == "input":
        return terms.names[node.params]
    if node.kind == "at":
        (index, _) = node.params
        return f"{words(terms, node.args[0][0], depth)}[{index}]"
    if node.kind in CONSTANTS:
        return CONSTANTS[node.kind](node.params)
    if depth == 0:
        return "..."
    inner = [words(terms, arg, depth - 1) for arg, _ in node.args[:4]] + ["..."] * (len(node.args) > 4)
    if node.kind == "sum":
        if not node.args:
            return "0"
        factors = [_number(factor) for factor in node.params]
        return " + ".join(f"{factor}{arg}" for factor, arg in zip(factors, inner, strict=False)) + (
            f" ({len(node.args)} terms)" if len(node.args) > 4 else ""
        )
    if node.kind == "prod":
        return " * ".join(f"({arg})" if " + " in arg else arg for arg in inner)
    if node.kind == "over":
        return f"{node.params}_over({inner[0]})"
    return f"{_name(node)}({', '.join(inner)})"


def _name(node: Node) -> str:
    name = node.params if node.kind in ("map", "extreme") else node.kind
    if isinstance(name, str):
        return name
    return "table" if name[0] == "table" else " ".join(map(str, name))


def _number(factor: Any) -> str:
    return "" if factor == 1 else f"{float(factor):.6g} "


def place(terms: Terms, term: int) -> str:
    """Returns the source line of a term, the loop iterations in which it was made, and the device."""
    origin = terms.origins[term]
    if origin is None:
        return "the inputs"
    indices = ", ".join(map(str, origin.loop_indices))
    around = f", turn {indices} of the loops around it" if indices else ""
    device = f", device {origin.device}" if origin.device is not None else ""
    return f"{origin.step.name} {origin.step.place}{around}{device}"


def where(error: RefusalError) -> str:
    """Returns a refusal with the operation that was not understood."""
    step = error.step
    return f"{error}; at {step.name} {step.place}" if step is not None else str(error)
