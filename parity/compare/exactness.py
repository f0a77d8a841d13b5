"""Proofs of one case element by element: in exact real arithmetic, or with loops unrolled and every rounding kept."""

import dataclasses
import fnmatch
from collections.abc import Container
from typing import Any

from parity.builds.build import Group
from parity.builds.weights.map import WeightMap
from parity.builds.weights.transforms import Identity
from parity.cases.case import Case
from parity.compare.side import Side
from parity.prove import Frontier, Proof
from parity.prove.exact import Equality, Link, Named, Relation, equal
from parity.prove.exact.rounded import ROUNDED
from parity.prove.rules.registry import MOVED
from parity.verdicts import SIDES, Finding

MOST_STEPS = 300_000
"""Maximum number of operations, iteration by iteration, before the proof stops."""
MOST_TRIED = 20_000
"""The same for a proof in exact arithmetic that no case asks for: two seconds at most."""
BROKEN = (AssertionError, LookupError, RecursionError, TypeError, ValueError)
ELEMENTS, UNROLL, ZEROS = "elements", "unroll", "added-zeros"
"""Names of the rules in proofs, with `MOVED`."""


def difference(found: Equality) -> Finding:
    """Returns the first difference of two sides that are not proved equal, as a finding."""
    where, made = _split(found)
    if made:
        return Finding(where=where, **dict(zip(SIDES, made, strict=True)), cause="another function")
    ends = "docs/exact.md says where such proofs end; let the case not ask for one"
    return Finding(
        where="exact arithmetic",
        reference="",
        candidate=found.refusal or where,
        labels=("", ""),
        next_step=ends if found.refusal else "compare what both sides return",
    )


def _split(found: Equality) -> tuple[str, list[str]]:
    """Returns the cells that differ, and the operation behind them on each side, with the inputs that only it reads.

    There are no operations if two results differ in shape or kind of number.
    """
    where, _, rest = found.difference.partition("\n  reference: ")
    sides = [side.split("\n    ") for side in rest.split("\n  candidate: ")] if rest else []
    return where, [", ".join([made.removeprefix("made by "), *only]) for _, *only, made in sides]


def named(side: Side) -> Named:
    """Returns the lowered program of a side with the names of its arguments and results."""
    return Named(
        program=side.lowered,
        arguments=[" ".join(name) for _, name in sorted(side.read_arguments.items())],
        results=list(map(" ".join, side.results)),
    )


def relation(reference: Side, weights: WeightMap, case: Case) -> Relation:
    """Returns the arguments and results of both sides that are equal: by the weight map, the batch, the values.

    The rows of the batch are split, because they are equal on both sides; so are the dimensions that the case names.
    """
    inputs, info = reference.build.abstract_inputs, reference.traced.out_info
    arguments = _leaves(weights, "state", reference.build.leaves)
    arguments += [_same("input", path) for path in sorted(inputs)]
    results = []
    for group in sorted(info):
        if Group(group).by_leaf:
            results += _leaves(weights, group, info[group])
        else:
            results += [_same(group, path) for path in info[group]]
    split_axes = {f"input {path}": (0,) for path, x in inputs.items() if len(x.shape) > 1}
    for path in reference.state_paths:
        dims = [dims for glob, dims in case.accept.split_dims.items() if fnmatch.fnmatch(path, glob)]
        split_axes |= {f"state {path}": each for each in dims}
    ranges = {f"input {path}": within for path, within in case.accept.integer_ranges.items()}
    return Relation(arguments=arguments, results=results, split_axes=split_axes, ranges=ranges)


def _same(group: str, path: str) -> Link:
    return Link(reference=(f"{group} {path}",), candidate=(f"{group} {path}",))


def _leaves(weights: WeightMap, group: str, paths: Container[str]) -> list[Link]:
    """Returns a link for each entry of the weight map whose first leaf is among some paths."""
    return [
        Link(
            reference=tuple(f"{group} {path}" for path in entry.reference),
            candidate=tuple(f"{group} {path}" for path in entry.candidate),
            transform=entry.transform,
        )
        for entry in weights.entries
        if entry.reference[0] in paths
    ]


def equal_exactly(
    sides: tuple[Side, Side], weights: WeightMap, case: Case, *, requested: bool = True
) -> Equality:
    """Proves both sides of a case equal in exact arithmetic.

    Args:
        requested: False for a proof that the case does not request: it has few steps, and its errors are refusals.
    """
    claim = named(sides[0]), named(sides[1]), relation(sides[0], weights, case)
    return equal(*claim) if requested else _claimed(*claim, most_steps=MOST_TRIED)


def _claimed(left: Named, right: Named, links: Relation, **options: Any) -> Equality:
    try:
        return equal(left, right, links, **options)
    except BROKEN as error:  # a failed optional proof must not end a run
        return Equality(proved=False, refusal=repr(error))


def walk(sides: tuple[Side, Side], weights: WeightMap, case: Case) -> Proof:
    """Proves that both sides of a case do the same operations on the same elements, each with its own rounding.

    The proof is ``reordered`` at best: compilers round differently at the end of a loop, and in another memory layout.
    """
    links = dataclasses.replace(relation(sides[0], weights, case), split_axes={})
    claim = named(sides[0]), named(sides[1]), links
    found = _claimed(*claim, most_steps=MOST_STEPS, arithmetic=ROUNDED)
    moved = sum(not isinstance(link.transform, Identity) for link in links.arguments)
    rules = {ELEMENTS: found.steps, UNROLL: found.turned, MOVED: moved, ZEROS: found.zeros}
    return Proof(
        proved=False,
        reordered=found.proved,
        rules={name: times for name, times in rules.items() if times} if found.proved else {},
        operations=found.sides,
        seconds=found.seconds,
        frontier=() if found.proved else (_frontier(found),),
    )


def _frontier(found: Equality) -> Frontier:
    """Returns the place where the proof stopped."""
    if found.refusal:
        return Frontier(where=f"what rules do not know: {found.refusal}")
    where, made = _split(found)
    place = " against ".join(dict.fromkeys(made))
    return Frontier(where=where, differences=(place,) if place else ())
