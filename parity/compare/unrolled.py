"""Programs of other structure that do the same operations on the same elements: loops by turns, weights moved."""

import dataclasses

from parity.builds.weights.map import WeightMap
from parity.builds.weights.transforms import Identity
from parity.cases.case import Case
from parity.compare.exactness import named, relation
from parity.compare.side import Side
from parity.prove import Frontier, Proof
from parity.prove.exact import Equality, ProofCache, equal
from parity.prove.exact.rounded import BITS, NUMBERS
from parity.prove.exact.rounding import Rounding
from parity.prove.rules.registry import MOVED

__all__ = ["ELEMENTS", "UNROLL", "ZEROS", "walk"]

MOST_STEPS = 300_000
"""Operations, turn by turn, after which a program is given up."""
BROKEN = (AssertionError, LookupError, RecursionError, TypeError, ValueError)
ELEMENTS, UNROLL, ZEROS = "elements", "unroll", "added-zeros"
"""The rules, as proofs name them, with `MOVED`."""


def walk(reference: Side, candidate: Side, weights: WeightMap, case: Case) -> Proof:
    """Returns whether both sides of a case do the same operations on the same elements, each rounding by itself.

    ``reordered`` at best: compilers round otherwise where a loop ends, and where an array lies otherwise.

    Args:
        reference, candidate: both are lowered, neither is compiled.
        weights: which leaf is which.
        case: its splits and ranges.
    """
    sides = named(reference), named(candidate)
    links = dataclasses.replace(relation(reference, weights, case), apart={})
    found, zeros = Equality(proved=False), 0
    for arithmetic in (BITS, NUMBERS):
        cache = ProofCache(most_steps=MOST_STEPS, arithmetic=arithmetic)
        try:
            found = equal(*sides, links, cache)
        except BROKEN as error:  # a claim that nobody has to make must not end a run
            found = Equality(proved=False, refusal=repr(error))
        if found.proved or found.refusal:
            zeros = cache.algebra.dropped if isinstance(cache.algebra, Rounding) else 0
            break
    moved = sum(not isinstance(link.transform, Identity) for link in links.arguments)
    rules = {ELEMENTS: found.steps, UNROLL: found.turned, MOVED: moved, ZEROS: zeros}
    return Proof(
        proved=False,
        reordered=found.proved,
        rules={name: times for name, times in rules.items() if times} if found.proved else {},
        operations=found.sides,
        seconds=found.seconds,
        frontier=() if found.proved else (_frontier(found),),
    )


def _frontier(found: Equality) -> Frontier:
    """Returns where the walk ended, in its own words."""
    where, *rest = (found.difference or f"what rules do not know: {found.refusal}").splitlines()
    return Frontier(where=where, differences=tuple(line.strip() for line in rest))
