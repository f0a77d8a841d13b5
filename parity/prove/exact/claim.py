"""Claim that two programs compute the same functions in exact real arithmetic, and the place where they differ."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from parity.builds.weights.transforms import Concat, Identity
from parity.prove.exact.algebra import COMMUTING
from parity.prove.exact.interpreter import MOST_STEPS, REALS, Arithmetic, Interpreter, Named, Shared
from parity.prove.exact.relation import Link, Relation, atom, carry
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import Node, RefusalError, Terms
from parity.verdicts import listed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equality:
    """Result of a claim that two programs are equal in exact real arithmetic.

    Args:
        proved: True if they are equal under ``assumptions``.
        assumptions: conditions on the inputs, as text.
        difference: the first results that differ, and the innermost differing terms, as text; empty if proved or
            refused.
        refusal: the part that was not understood; empty if none.
        sides: operations that were walked on each side.
        turned: loop iterations that were walked.
        zeros: sums from which a zero was left out, in arithmetic that rounds.
    """

    proved: bool
    assumptions: tuple[str, ...] = ()
    difference: str = ""
    refusal: str = ""
    terms: int = 0
    sides: tuple[int, int] = (0, 0)
    turned: int = 0
    zeros: int = 0
    seconds: float = 0.0

    @property
    def steps(self) -> int:
        """The operations that were walked."""
        return sum(self.sides)


def equal(
    reference: Named,
    candidate: Named,
    relation: Relation,
    *,
    arithmetic: Arithmetic = REALS,
    most_steps: int = MOST_STEPS,
) -> Equality:
    """Decides whether two programs are equal; a program that is not understood is never called equal.

    Args:
        arithmetic: semantics of the operations.
        most_steps: limit of operations to walk; beyond it, the claim is refused.
    """
    start = time.perf_counter()
    shared = Shared(most_steps, arithmetic)
    algebra = shared.algebra
    terms = algebra.terms
    sides: list[Interpreter] = []

    def ended(**fields: Any) -> Equality:
        walked = [*(side.steps for side in sides), 0, 0]
        return Equality(
            **fields,
            terms=len(terms.nodes),
            sides=(walked[0], walked[1]),
            turned=sum(side.turned for side in sides),
            zeros=len(algebra.dropped),
            seconds=time.perf_counter() - start,
        )

    try:
        sides += [Interpreter(each, shared) for each in (reference, candidate)]
        inputs = _inputs(sides, relation, shared.tensors)
        results = [side.walk(given) for side, given in zip(sides, inputs, strict=True)]
        difference = _first_difference(shared.tensors, results, relation)
    except RefusalError as error:
        at = f"; at {error.step.name} {error.step.place}" if error.step is not None else ""
        return ended(proved=False, refusal=f"{error}{at}")
    if difference:
        return ended(proved=False, difference=difference)
    within = [f"{name} is in [{low}, {high})" for name, (low, high) in sorted(relation.ranges.items())]
    undefined = set().union(*map(algebra.definedness.undefined, algebra.assumed))
    defined = sorted({f"{words(terms, term)} is defined" for term in undefined})
    return ended(proved=True, assumptions=(*within, *defined, *sorted(algebra.thresholds)))


def _inputs(
    sides: Sequence[Interpreter], relation: Relation, tensors: Tensors
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the arguments of both sides, made from the same terms."""
    given: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for link in relation.arguments:
        sources, targets = link.reference, link.candidate
        types = sides[0].types
        if types.keys().isdisjoint(sources):
            known = [name for name in targets if name in sides[1].types]
            if not known:
                continue
            if not isinstance(link.transform, Identity):
                raise RefusalError(f"arguments: {known} are read by one side only, expected {sources} too")
            types = {sources[0]: sides[1].types[known[0]]}
        atoms = [
            atom(tensors, name, *kind, relation.split_axes.get(sources[0], ()))
            for name, kind in zip(sources, _kinds(types, link), strict=True)
        ]
        if sources[0] in relation.ranges:
            tensors.algebra.tables.limit(atoms[0].cells.ravel().tolist(), relation.ranges[sources[0]])
        carried = carry(tensors, link.transform, atoms)
        for side, names, values in ((given[0], sources, atoms), (given[1], targets, carried)):
            each = dict(zip(names, values, strict=True))
            if again := sorted(side.keys() & each.keys()):
                raise RefusalError(f"arguments: got two links for {again}")
            side.update(each)
    for side, known in zip(sides, given, strict=True):
        kinds = {name: (x.shape, x.sort) for name, x in known.items()}
        if unlike := [name for name, kind in side.types.items() if kinds.get(name) != kind]:
            raise RefusalError(f"arguments: no link gives {unlike} with its type")
    return given


def _kinds(types: Mapping[str, Any], link: Link) -> list[tuple[tuple[int, ...], str]]:
    """Returns shape and sort of each input; one that the program does not read has the length in the weight map."""
    shape, sort = next(types[name] for name in link.reference if name in types)
    kinds = []
    for place, name in enumerate(link.reference):
        own = list(shape)
        if isinstance(link.transform, Concat):
            own[link.transform.axis % len(shape)] = link.transform.sizes[place]
        kinds.append(types.get(name, (tuple(own), sort)))
    return kinds


def _first_difference(tensors: Tensors, results: Sequence[Mapping[str, Tensor]], relation: Relation) -> str:
    reference, candidate = results
    linked = (
        {name for link in relation.results for name in link.reference},
        {name for link in relation.results for name in link.candidate},
    )
    for known, names in zip(results, linked, strict=True):
        if set(known) != names:
            raise RefusalError(f"results: no link for {sorted(set(known) ^ names)}")
    for link in relation.results:
        carried = carry(tensors, link.transform, [reference[name] for name in link.reference])
        for name, left in zip(link.candidate, carried, strict=True):
            right = candidate[name]
            if left.shape != right.shape or left.sort != right.sort:
                return f"{name}: {left.sort}{list(left.shape)} against {right.sort}{list(right.shape)}"
            pair = tensors.grids([left, right])
            unlike = np.argwhere(pair[0] != pair[1])
            if len(unlike):
                place = tuple(unlike[0])
                count = f"{len(unlike)} of {pair[0].size} cells differ"
                return f"{name}{list(map(int, place))}: {count}\n" + explain(
                    tensors.terms, pair[0][place].item(), pair[1][place].item()
                )
    return ""


DEPTH, DIALECT = 3, "stablehlo."
CONSTANTS: dict[str, Callable[[Any], str]] = {
    "const": str,
    "word": str,
    "one": lambda _: "1",
    "float": lambda text: f"{float.fromhex(text):.6g}" if "p" in text else text,
}
MOST = 16
"""Number of a sum's arguments that are compared to find the matching pair."""


def explain(terms: Terms, reference: int, candidate: int) -> str:
    """Returns the innermost pair of terms at which two cells differ, the inputs of only one, and their source lines."""
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
            lines.append(f"    only it reads {listed(only, 4)}")
        used = "" if terms.origins[term] else f", used by {place(terms, user)}"
        lines.append(f"    made by {place(terms, term)}{used}")
    return "\n".join(lines)


def inputs(terms: Terms, term: int) -> set[str]:
    """Returns the inputs that a term reads, as text."""
    found: set[str] = set()
    seen, stack = {term}, [term]
    while stack:
        top = stack.pop()
        node = terms.nodes[top]
        if node.kind == "input" or _is_part(terms, node):
            found.add(words(terms, top))
            continue
        for arg, _ in node.args:
            if arg not in seen:
                seen.add(arg)
                stack.append(arg)
    return found


def _is_part(terms: Terms, node: Node) -> bool:
    """True if a term is one index of an input along some axes."""
    single = node.kind == "part" and all(length == 1 for _, length, _ in node.params)
    return single and terms.nodes[node.args[0][0]].kind == "input"


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
        return node.params
    if node.kind == "part":
        return words(terms, node.args[0][0], depth) + "".join(f"[{_bounds(*each)}]" for each in node.params)
    if node.kind in CONSTANTS:
        return CONSTANTS[node.kind](node.params)
    if depth == 0:
        return "..."
    inner = [words(terms, arg, depth - 1) for arg, _ in node.args[:4]] + ["..."] * (len(node.args) > 4)
    if node.kind == "sum":
        if not node.args:
            return "0"
        factors = ["" if factor == 1 else f"{float(factor):.6g} " for factor in node.params]
        return " + ".join(f"{factor}{arg}" for factor, arg in zip(factors, inner, strict=False)) + (
            f" ({len(node.args)} terms)" if len(node.args) > 4 else ""
        )
    if node.kind == "prod":
        return " * ".join(f"({arg})" if " + " in arg else arg for arg in inner)
    if node.kind == "over":
        return f"{node.params}_over({inner[0]})"
    return f"{_name(node)}({', '.join(inner)})"


def _bounds(start: int, length: int, stride: int) -> str:
    by = f":{stride}" if stride > 1 else ""
    return f"{start}:{start + (length - 1) * stride + 1}{by}" if length > 1 else f"{start}"


def _name(node: Node) -> str:
    name = node.params if node.kind in ("map", "extreme") else node.kind
    if isinstance(name, str):
        return name.removeprefix(DIALECT)
    return "table" if name[0] == "table" else " ".join(map(str, name))


def place(terms: Terms, term: int) -> str:
    """Returns the source line of a term, the loop iterations in which it was made, and the device."""
    origin = terms.origins[term]
    if origin is None:
        return "the inputs"
    indices = ", ".join(map(str, origin.loop_indices))
    around = f", turn {indices} of the loops around it" if indices else ""
    device = f", device {origin.device}" if origin.device is not None else ""
    return f"{origin.step.name} at {origin.step.place}{around}{device}".removeprefix(DIALECT)
