"""Claim that two programs compute the same functions of their inputs in exact real arithmetic."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.builds.weights.transforms import Identity
from parity.prove.exact.explain import definitions, explain, where
from parity.prove.exact.interpreter import Interpreter, Named, ProofCache
from parity.prove.exact.relation import Link, Relation, atom, carry, merge
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import RefusalError

__all__ = ["Equality", "equal"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equality:
    """Result of a claim that two programs are equal in exact real arithmetic.

    Args:
        proved: True if they are equal under ``assumptions``.
        assumptions: conditions on the inputs, as text.
        difference: the first results that differ, and the innermost differing terms, as text; empty if proved or
            refused.
        refusal: the part that was not understood; empty if none.
        terms: size of the proof.
        sides: operations that were walked on each side.
        turned: loop iterations that were walked.
        seconds: duration.
    """

    proved: bool
    assumptions: tuple[str, ...] = ()
    difference: str = ""
    refusal: str = ""
    terms: int = 0
    sides: tuple[int, int] = (0, 0)
    turned: int = 0
    seconds: float = 0.0

    @property
    def steps(self) -> int:
        """The operations that were walked."""
        return sum(self.sides)


def equal(
    reference: Named, candidate: Named, relation: Relation, cache: ProofCache | None = None
) -> Equality:
    """Decides whether two programs are equal; a program that is not understood is never called equal.

    Args:
        reference, candidate: the programs.
        relation: arguments and results that correspond.
        cache: shared with other claims.
    """
    start = time.perf_counter()
    cache = cache or ProofCache()
    cache.begin(reference, candidate, relation)
    algebra = cache.algebra
    terms = algebra.terms
    sides: list[Interpreter] = []

    def ended(**fields: Any) -> Equality:
        walked = [*(side.steps for side in sides), 0, 0]
        return Equality(
            **fields,
            terms=len(terms.nodes),
            sides=(walked[0], walked[1]),
            turned=sum(side.turned for side in sides),
            seconds=time.perf_counter() - start,
        )

    try:
        sides += [Interpreter(each, cache) for each in (reference, candidate)]
        inputs = _inputs(sides, relation, cache.tensors)
        results = [side.walk(given) for side, given in zip(sides, inputs, strict=True)]
        difference = _first_difference(cache.tensors, results, relation)
    except RefusalError as error:
        return ended(proved=False, refusal=where(error))
    if difference:
        return ended(proved=False, difference=difference)
    within = [f"{name} is in [{low}, {high})" for name, (low, high) in sorted(relation.ranges.items())]
    defined = definitions(terms, algebra.definedness.all_undefined(algebra.assumed))
    return ended(proved=True, assumptions=(*within, *defined, *sorted(algebra.thresholds)))


def _inputs(
    sides: Sequence[Interpreter], relation: Relation, tensors: Tensors
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the arguments of both sides, made from the same terms."""
    given: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for link in relation.arguments:
        merging = merge(link.transform)
        back = merging is not None  # the candidate's parts are the inputs
        places = (1, 0) if back else (0, 1)
        names = (link.reference, link.candidate)
        left, right = (names[place] for place in places)
        types, others = (sides[place].types for place in places)
        if types.keys().isdisjoint(left):
            known = [name for name in right if name in others]
            if not known:
                continue
            if not isinstance(link.transform, Identity):
                raise RefusalError(f"arguments: {known} are read by one side only, expected {left} too")
            types = others
        kinds = _kinds(left, types, link)
        split_axes = () if back else relation.split_axes.get(left[0], ())
        whose = "candidate's " if back else ""  # names of both sides may be equal
        atoms = [
            atom(tensors, whose + name, *kind, split_axes) for name, kind in zip(left, kinds, strict=True)
        ]
        if not back and left[0] in relation.ranges:
            tensors.algebra.tables.limit(atoms[0].cells.ravel().tolist(), relation.ranges[left[0]])
        carried = carry(tensors, merging or link.transform, atoms)
        for place, found in zip(
            places, (zip(left, atoms, strict=True), zip(right, carried, strict=True)), strict=True
        ):
            each = dict(found)
            if again := sorted(given[place].keys() & each.keys()):
                raise RefusalError(f"arguments: got two links for {again}")
            given[place].update(each)
    for side, known in zip(sides, given, strict=True):
        missing = [name for name in side.types if name not in known]
        wrong = [
            name
            for name, kind in side.types.items()
            if name in known and (known[name].shape, known[name].sort) != kind
        ]
        if missing or wrong:
            raise RefusalError(f"arguments: no link gives {missing or wrong} with its type")
    return given


def _kinds(names: Sequence[str], types: Mapping[str, Any], link: Link) -> list[tuple[tuple[int, ...], str]]:
    """Returns shape and sort of each name; a part that the program does not read has the length in the weight map."""
    shape, sort = next(types[name] for name in names if name in types)
    sizes = getattr(link.transform, "sizes", None)
    found = []
    for place, name in enumerate(names):
        own = list(shape)
        if sizes is not None:
            own[link.transform.axis % len(shape)] = sizes[place]
        found.append(types.get(name, (tuple(own), sort)))
    return found


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
