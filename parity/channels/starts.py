"""Initial states of both sides: constants up to rounding, drawn leaves by recipe, by proof, by bits or as samples."""

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.builds.build import SEED, Build
from parity.builds.tree import Role, to_host
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Identity
from parity.channels.results import with_sources
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.start import Start
from parity.ir.jaxprs import origin
from parity.values.rng.demand import Demand
from parity.values.rng.distribution import (
    ANOTHER_CONSTANT,
    ANOTHER_KEY,
    ENOUGH,
    FOUND,
    as_numbers,
    compare_dependences,
    compare_distributions,
    compare_initial,
    compare_slices,
    on_leaf,
    smallest_difference,
)
from parity.values.rng.draws import Recorder
from parity.values.rng.recipes import LeafProvenance
from parity.values.rng.repeats import compare_repeats
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict, grouped, weakest

KEYS = 4
"""Number of states in which every leaf is compared; fewer if they are large."""
MOST_KEYS = 8_192
"""Maximum number of states that one run of a program makes, of small leaves."""
MOST_NUMBERS = 4_000_000
"""Maximum number of elements in memory at once, if there is more than one state."""


class _Made(NamedTuple):
    """An entry of the weight map and the recipes of its leaves."""

    entry: Entry
    left: Sequence[LeafProvenance]
    right: Sequence[LeafProvenance]

    @property
    def keyed(self) -> bool:
        """True if a key may change a leaf."""
        return any(recipe.keyed for recipe in (*self.left, *self.right))

    @property
    def same(self) -> bool:
        """True if both sides make the same bits from the same key."""
        exact = ([recipe.exact for recipe in side] for side in (self.left, self.right))
        return isinstance(self.entry.transform, Identity) and len({tuple(side) for side in exact}) == 1


def compare_starts(evidence: Evidence, shared: bool) -> ChannelResult:
    """Compares the initial states; findings name the lines that make the leaves.

    Args:
        shared: True if both sides draw from the same keys.

    Returns:
        The findings, and `PROVED`, `BITWISE` or `EQUAL` for leaves without one. The detail is the smallest difference
        that samples show, or why there are no samples; it is empty if recipes decide.
    """
    starts = _compare(evidence, shared)
    partners = {
        path: (path, entry.candidate[min(at, len(entry.candidate) - 1)])
        for entry in evidence.weights.entries
        for at, path in enumerate(entry.reference)
    }
    leaves = evidence.builds[0].leaves
    copies = {path for path in partners if leaves[path].role is not Role.PARAMS}
    ordered = sorted(starts.findings, key=lambda one: one.leaf in copies)  # averages after their parameters
    found = (with_sources(evidence, one, partners.get(one.leaf, ("", ""))) for one in ordered)
    return dataclasses.replace(starts, findings=tuple(found))


def _compare(evidence: Evidence, shared: bool) -> ChannelResult:
    """Compares the initial states. Leaves that depend on no key must be equal.

    RNG state is compared only if both sides share keys (``shared``).
    """
    sides = [recipes(evidence.session, build) for build in evidence.builds]
    made = [
        _Made(
            entry, [sides[0][path] for path in entry.reference], [sides[1][path] for path in entry.candidate]
        )
        for entry in evidence.weights.entries
        if shared or entry.role is not Role.RNG
    ]
    findings, exact = _compare_constants(evidence, [one for one in made if not (one.keyed or one.same)])
    leaves = evidence.builds[0].leaves
    drawn = [one for one in made if one.keyed and all(leaves[path].size for path in one.entry.reference)]
    if shared:
        verdict, more = _compare_bits(evidence, [one.entry for one in drawn if not one.same])
        return ChannelResult(verdict=weakest((verdict, exact)), findings=(*findings, *more))
    if given := _given(evidence, drawn):
        note = f"drawn leaves are not compared: the {given} is a built module, whose initializers are not at hand"
        return ChannelResult(verdict=Verdict.EQUAL, findings=tuple(findings), detail=note)
    more, power = _compare_draws(evidence, drawn)
    return ChannelResult(verdict=Verdict.EQUAL, findings=(*findings, *more), detail=power)


def _given(evidence: Evidence, drawn: Sequence[_Made]) -> str:
    """Returns the side whose drawn leaves are all arrays made before the trace; empty if there is none."""
    paths = _paths(one.entry for one in drawn)
    for name, build, mine in zip(SIDES, evidence.builds, paths, strict=True):
        jaxpr, places = _program(evidence.session, build)
        arrays = set(jaxpr.jaxpr.constvars)
        outs = (jaxpr.jaxpr.outvars[places[path]] for path in mine)
        if mine and all(origin(jaxpr.jaxpr, out) in arrays for out in outs):
            return name
    return ""


def recipes(session: Session, build: Build) -> dict[str, LeafProvenance]:
    """Returns the provenance of each leaf of an initial state; all builds of a session share its numbers."""
    jaxpr, places = _program(session, build)
    return session.memo.share(session.recipes.of, jaxpr, list(places), by=(build,))


def _program(session: Session, build: Build) -> tuple[core.ClosedJaxpr, dict[str, int]]:
    """Returns the traced program that makes a state, and the place of each leaf among its results."""
    places = {path: place for place, path in enumerate(sorted(build.leaves))}
    return session.start(build).traced.jaxpr, places


def _compare_constants(evidence: Evidence, made: Sequence[_Made]) -> tuple[list[Finding], Verdict]:
    """Compares the values of leaves that depend on no key, unless one scalar fills them on both sides."""
    book = evidence.session.recipes
    entries = []
    for one in made:
        number = book.distribution(one.left)
        if not (book.is_constant(number) and number == book.distribution(one.right)):
            entries.append(one.entry)
    if not entries:
        return [], Verdict.PROVED
    paths = _paths(entries)
    left, right = (
        _evaluated(evidence, build, names) for build, names in zip(evidence.builds, paths, strict=True)
    )
    return compare_initial(left, right, WeightMap(tuple(entries)), ANOTHER_CONSTANT)


def _paths(entries: Iterable[Entry]) -> tuple[list[str], list[str]]:
    sides = [(entry.reference, entry.candidate) for entry in entries]
    return [path for left, _ in sides for path in left], [path for _, right in sides for path in right]


def _evaluated(evidence: Evidence, build: Build, paths: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns leaves that depend on no key, and computes nothing else."""
    jaxpr, order = _program(evidence.session, build)
    places = {path: order[path] for path in paths}
    with evidence.session.clock.book("audit"):
        outputs = Recorder(Demand(jaxpr, places.values(), all_draws=False)).run(jaxpr, [None])
        return to_host({path: jnp.asarray(outputs[place]) for path, place in places.items()})


def _compare_bits(evidence: Evidence, entries: Sequence[Entry]) -> tuple[Verdict, list[Finding]]:
    """Compares drawn leaves with different recipes bit by bit for one key."""
    if not entries:
        return Verdict.PROVED, []
    share = evidence.session.memo.share
    sides = [evidence.session.start(build) for build in evidence.builds]
    left, right = (share(_run, side, by=(side.identity,)) for side in sides)
    findings, verdict = compare_initial(left, right, WeightMap(tuple(entries)), ANOTHER_KEY)
    return verdict, findings


def _run(start: Start) -> dict[str, np.ndarray]:
    create = start.compile()
    with start.clock.phase("initial state", "execute"):
        return to_host(create(jax.random.key(SEED)))


def _compare_draws(evidence: Evidence, drawn: Sequence[_Made]) -> tuple[list[Finding], str]:
    """Compares drawn leaves by recipe, or else as samples; also returns the power of the samples."""
    book = evidence.session.recipes
    ties = [_ties([one.left for one in drawn]), _ties([one.right for one in drawn])]
    tied = {index for group in ties[0] ^ ties[1] for index, _ in group}
    numbers = [(book.distribution(one.left), book.distribution(one.right)) for one in drawn]
    unsettled = [
        index for index, (left, right) in enumerate(numbers) if index in tied or left is None or left != right
    ]
    entries = [one.entry for one in drawn]
    if not unsettled:
        return [], ""
    if all(entries[index].reference == entries[index].candidate for index in unsettled):
        first, second = (evidence.session.start(build).identity for build in evidence.builds)
        if first == second:
            return [], ""

    def recipe(index: int) -> Hashable:
        """Entries with one recipe on each side have one distribution."""
        alone = index in tied or None in numbers[index] or not isinstance(entries[index].transform, Identity)
        loose = tuple(each.loose for each in (*drawn[index].left, *drawn[index].right))
        return index if alone else (loose, evidence.builds[0].leaves[entries[index].reference[0]].shape)

    groups = grouped(unsettled, recipe).values()
    return _compare_samples(evidence, entries, [[entries[index] for index in group] for group in groups])


def _ties(made: Sequence[Sequence[LeafProvenance]]) -> set[frozenset[tuple[int, int]]]:
    """Returns the sets of leaves that share a draw: entries, and positions within them unless all positions agree."""
    users: dict[int, set[tuple[int, int]]] = collections.defaultdict(set)
    for index, leaves in enumerate(made):
        for position, recipe in enumerate(leaves):
            for draw in recipe.draws:
                users[draw].add((index, position))
    return {
        frozenset(
            group if len({position for _, position in group}) > 1 else ((index, 0) for index, _ in group)
        )
        for group in users.values()
    }


def _compare_samples(
    evidence: Evidence, drawn: Sequence[Entry], unsettled: Sequence[Sequence[Entry]]
) -> tuple[list[Finding], str]:
    """Compares repeats in all drawn leaves, and the distributions of the first entry of each unsettled group.

    Findings on its distribution hold for the other entries of the group.
    """
    paths = _paths(drawn)
    total = sum(math.prod(evidence.builds[0].leaves[path].shape) for path in paths[0])
    keys = max(2, min(KEYS, MOST_NUMBERS // max(1, total)))
    sides = [_first(evidence.session, *each, keys) for each in zip(evidence.builds, paths, strict=True)]
    sides[1] = _back(drawn, sides[1])
    repeats, kept = compare_repeats(*sides)
    without = ([one for one in group if not set(one.reference) & set(repeats)] for group in unsettled)
    groups = [group for group in without if group]
    entries = [group[0] for group in groups]
    others = {path: group[1:] for group in groups for path in group[0].reference}
    places = {path: _places(as_numbers(sides[0][path][0][kept[path]]), keys) for path in _paths(entries)[0]}

    def sampled(path: str, leaf: np.ndarray) -> np.ndarray:
        return as_numbers(leaf[:, *kept[path]])[:, *places[path]].reshape(len(leaf), -1)

    left, right = _samples(evidence, entries, sides, sampled)
    power, least = smallest_difference(left, right)
    differing, dependent = compare_distributions(left, right), compare_dependences(left, right)
    covered = {finding.leaf for finding in (*differing, *dependent)}
    rest = {path: at for path, at in places.items() if path not in covered}
    differing += compare_slices(left, right, rest)
    differing += [
        on_leaf(finding, path)
        for finding in differing
        for other in others[finding.leaf]
        for path in other.reference
    ]
    return (
        [*repeats.values(), *differing, *dependent],
        f"scales that differ by {power:.2g} are found ({FOUND}, least of {least})" if least else "",
    )


def _first(session: Session, build: Build, paths: Sequence[str], keys: int) -> dict[str, np.ndarray]:
    """Returns some leaves of the initial states of the first keys; without a compile, all keys at once."""
    fits = keys * sum(build.leaves[path].size for path in paths) <= MOST_NUMBERS
    if fits and session.start(build).shares_types(paths):
        return _states(session, build, paths, range(keys))
    states = (session.fresh(build, SEED + key) for key in range(keys))
    leaves = zip(*([state[path] for path in paths] for state in states), strict=True)
    return dict(zip(paths, map(np.stack, leaves), strict=True))


def _places(leaf: np.ndarray, keys: int) -> tuple[np.ndarray, ...]:
    """Returns the indices by axis of the elements to compare: all, or a sample that is fixed for a given leaf size."""
    enough = -(-ENOUGH // keys)
    few = leaf.size <= enough
    chosen = np.arange(leaf.size) if few else np.random.default_rng(SEED).integers(0, leaf.size, enough)
    return np.unravel_index(chosen, leaf.shape) if leaf.ndim else ()


def _samples(
    evidence: Evidence,
    entries: Sequence[Entry],
    sides: Sequence[Mapping[str, np.ndarray]],
    sampled: Callable[[str, np.ndarray], np.ndarray],
) -> list[dict[str, np.ndarray]]:
    """Returns elements of some leaves of both sides, one row for each key; small leaves have further keys.

    ``sides`` are the leaves for the first keys, with the paths of the reference. ``sampled`` takes a leaf of several
    keys; it leaves out slices that repeat others, because they are no further draws.
    """
    rows = [{path: sampled(path, side[path]) for path in _paths(entries)[0]} for side in sides]

    def length(entry: Entry) -> int:
        return rows[0][entry.reference[0]].shape[1]

    keys = len(next(iter(sides[0].values())))
    small = [entry for entry in entries if 0 < length(entry) * keys < ENOUGH]
    for group in grouped(small, lambda entry: int(math.log(length(entry), 16))).values():
        paths = _paths(group)
        size = sum(evidence.builds[0].leaves[path].size for path in paths[0])
        most = min(MOST_KEYS, MOST_NUMBERS // size, -(-ENOUGH // min(map(length, group))))
        further = range(keys, max(most, keys + 1))
        left, right = (
            _states(evidence.session, build, each, further)
            for build, each in zip(evidence.builds, paths, strict=True)
        )
        for side, more in zip(rows, (left, _back(group, right)), strict=True):
            side |= {path: np.concatenate([side[path], sampled(path, more[path])]) for path in paths[0]}
    return rows


def _back(entries: Iterable[Entry], leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the candidate's leaves of several keys in the reference's layout; a transform takes those of one key."""
    same, moved = (
        [entry for entry in entries if isinstance(entry.transform, Identity) == wanted]
        for wanted in (True, False)
    )
    found = {entry.reference[0]: leaves[entry.candidate[0]] for entry in same}
    if moved:
        back, paths = WeightMap(tuple(moved)).to_reference, _paths(moved)[1]
        count = len(leaves[paths[0]])
        rows = [back({path: leaves[path][row] for path in paths}) for row in range(count)]
        found |= {path: np.stack([row[path] for row in rows]) for path in rows[0]}
    return found


def _states(session: Session, build: Build, paths: Sequence[str], keys: range) -> dict[str, np.ndarray]:
    """Returns some leaves of a build's initial states, of several keys at once, along a first axis."""
    make = session.start(build).of_keys(paths)
    with session.clock.phase("initial states", "execute"):
        return to_host(make(jax.vmap(jax.random.key)(SEED + jnp.arange(keys.start, keys.stop))))
