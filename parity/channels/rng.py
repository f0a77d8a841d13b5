"""The channel ``rng``: both sides draw from the same keys, none of them twice, and start from the same bits."""

import dataclasses
import functools
import math
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.cases.case import Keys
from parity.channels.channel import Aspect, Channel, Need
from parity.channels.streams import idle_streams
from parity.comparison.alone import beginning
from parity.comparison.comparison import AS_WRITTEN, SEED, Comparison
from parity.comparison.room import check_room
from parity.comparison.side import Side
from parity.jax_internals import content, key_implementation, main_position
from parity.programs.build import Build, Group
from parity.programs.tree import Role, to_host
from parity.prove import Alone, prove
from parity.rng import (
    Audited,
    Recipe,
    Recipes,
    audit,
    compare_draws,
    compare_initial,
    named_by_leaf,
    repeated_keys,
    unforeseen_draws,
)
from parity.rng.distribution import ENOUGH, compare_distributions, gathered
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL"]

STEPS = 3
MOST_KEYS = 256
MOST_NUMBERS = 4_000_000
SIDES = ("reference", "candidate")


def rng(work: Comparison) -> ChannelResult:
    """Keys of all draws, forward and backward, over three steps; initial states."""
    proved = work.same_program
    drawn = [_draws(work, side) for side in ((0,) if proved else (0, 1))] * (2 if proved else 1)
    fresh = [_initial(work, build) for build in work.builds]
    findings = [*_audited(drawn[:1] if proved else drawn), *_audited(fresh)]
    shared = _shares_keys(work)
    how = Verdict.EQUAL
    if shared:
        findings += [] if findings else compare_draws(*drawn)
        how, unequal = work.remember(
            ("initial", *work.builds, tuple(work.case.rules)), lambda: _compare_initial(work)
        )
        findings += unequal
    detail = f"{_both(drawn)}; initial state {_both(fresh)}"
    if not drawn[0].draws and not drawn[1].draws:
        detail = f"no draws; initial state {_both(fresh)}"
    if not shared:
        detail += "; the sides need not share keys"
        findings += _other_distributions(work) if all(side.draws for side in fresh) else []
    verdict = Verdict.FAILED if findings else how
    if verdict is Verdict.PROVED and not proved and drawn[0].draws:
        verdict = Verdict.BITWISE
    notes = tuple(idle_streams(work))
    return ChannelResult(name="rng", verdict=verdict, detail=detail, findings=tuple(findings), notes=notes)


def _shares_keys(work: Comparison) -> bool:
    """Two builds of one flavour, such as scanned and unrolled, derive their keys as their layouts do."""
    flavours = {build.flavour for build in work.builds}
    return work.case.keys == Keys.SHARED and len(flavours) == 2


def _both(sides: list[Audited]) -> str:
    ours, theirs = (side.sentence() for side in sides)
    return ours if ours == theirs else f"{ours} -> {theirs}"


def _audited(sides: list[Audited]) -> list[Finding]:
    """Returns what is wrong with the draws of each side by itself."""
    others = [side.sentence() for side in reversed(sides)]
    return [
        finding
        for side, audited, other in zip(SIDES, sides, others, strict=False)
        for finding in (*repeated_keys(audited, side, other), *unforeseen_draws(audited, side))
    ]


def _draws(work: Comparison, which: int) -> Audited:
    side = (work.reference, work.candidate)[which]
    key = ("draws", which, *work.builds, tuple(work.case.rules), *side.identity)
    return work.remember(key, lambda: _audit_side(work, side, which))


def _audit_side(work: Comparison, side: Side, which: int) -> Audited:
    state, info = side.state_paths, side.traced.out_info
    returned = {place: index for index, place in enumerate((g, p) for g in sorted(info) for p in info[g])}
    feedback = {
        index: returned[Group.STATE, path]
        for index, path in enumerate(state)
        if (Group.STATE, path) in returned
    }
    inputs = sorted(side.build.abstract_inputs)

    def value(index: int, step: int) -> Any:
        if index < len(state):
            return _start(work, which, state[index])
        return side.build.inputs(SEED + step - 1)[inputs[index - len(state)]]

    steps = STEPS if side.program.steps > 1 else 1
    with work.bench.clock.book("audit"):
        return audit(side.build.name, side.traced.jaxpr, value, feedback, steps)


def _start(work: Comparison, which: int, path: str) -> Any:
    """Returns a value that a leaf may start from, the same for the leaves that the weight map pairs."""
    if which == 0:
        return _typed(work.builds[0], path, beginning(path, work.builds[0].abstract[path]))
    if path in work.weights.alone[1]:
        return _typed(work.builds[1], path, beginning(path, work.builds[1].abstract[path]))
    entry = next(entry for entry in work.weights.entries if path in entry.candidate)
    ours = {name: beginning(name, work.builds[0].abstract[name]) for name in entry.reference}
    host = work.weights.to_candidate(ours)
    return _typed(work.builds[1], path, host[path])


def _typed(build: Build, path: str, host: np.ndarray) -> Any:
    dtype = build.abstract[path].dtype
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return host
    return jax.random.wrap_key_data(jnp.asarray(host), impl=key_implementation(dtype))


# --- initial states ---


def _initial(work: Comparison, build: Build) -> Audited:
    return work.remember(("fresh", build), lambda: _audit_initial(work, build))


def _audit_initial(work: Comparison, build: Build) -> Audited:
    key, jaxpr = jax.random.key(SEED), _created(work, build).jaxpr
    with work.bench.clock.book("audit"):
        drawn = audit(f"create {build.name}", jaxpr, lambda index, step: key)
        return named_by_leaf(drawn, jaxpr, enumerate(_leaves(build)))


def _leaves(build: Build) -> list[str]:
    """Returns the leaves that may be drawn; moments start at zero."""
    return sorted(path for path, leaf in build.leaves.items() if leaf.role is not Role.OPTIMIZER)


def _created(work: Comparison, build: Build) -> jax.stages.Traced:
    def create(key: jax.Array) -> dict[str, Any]:
        state = build.create(key)
        return {path: state[path] for path in _leaves(build)}

    def trace() -> jax.stages.Traced:
        with work.bench.clock.phase(f"{build.name}, initial state", "trace"):
            return jax.jit(create).trace(jax.random.key(SEED))

    return work.remember(("created", build), trace)


def _compare_initial(work: Comparison) -> tuple[Verdict, list[Finding]]:
    """Compares the initial states: by recipe, by proof, or else bit by bit."""
    if work.weights.is_identity and _made_alike(work):
        return Verdict.PROVED, []
    leaves = [_leaves(build) for build in work.builds]
    order = [{path: index for index, path in enumerate(side)} for side in leaves]
    results = tuple(
        (order[0][entry.reference[0]], order[1][entry.candidate[0]])
        for entry in work.weights.entries
        if entry.role is not Role.OPTIMIZER
    )
    sides = [_start_program(work, build) for build in work.builds]
    first, second = (
        tuple(places[path] for path in paths) for places, paths in zip(order, work.weights.alone, strict=True)
    )
    if work.weights.is_identity and _proves(work, sides, results, Alone(results=(first, second))):
        return Verdict.PROVED, []
    ours, theirs = (
        work.remember(("initial", one.content), functools.partial(_run, work, one)) for one in sides
    )
    return Verdict.BITWISE, compare_initial(ours, theirs, work.weights)


def _recipes(work: Comparison) -> tuple[Recipes, list[dict[str, Recipe]]]:
    recipes = Recipes()
    return recipes, [recipes.of(_created(work, build).jaxpr, _leaves(build)) for build in work.builds]


def _made_alike(work: Comparison) -> bool:
    """Whether each leaf is made by the same operations from the same key on both sides, as the programs say."""
    _, (ours, theirs) = _recipes(work)
    return all(
        ours[entry.reference[0]].exact == theirs[entry.candidate[0]].exact
        for entry in work.weights.entries
        if entry.role is not Role.OPTIMIZER
    )


def _distributed_alike(work: Comparison) -> bool:
    """Whether each leaf is made by the same operations on both sides, from whatever keys, layer by layer."""
    recipes, sides = _recipes(work)

    def alike(*paths: Sequence[str]) -> bool:
        ours, theirs = (
            recipes.distribution(side[path] for path in names)
            for side, names in zip(sides, paths, strict=True)
        )
        return ours is not None and ours == theirs

    return all(
        alike(entry.reference, entry.candidate)
        for entry in work.weights.entries
        if entry.role in (Role.PARAMS, Role.STATE)
    )


def _other_distributions(work: Comparison) -> list[Finding]:
    """Compares initial numbers as samples, of as many keys as the smallest leaf takes, where recipes differ."""
    if _distributed_alike(work):
        return []
    starts = [_start_program(work, build).content for build in work.builds]
    if starts[0] == starts[1]:
        return []
    entries = [entry for entry in work.weights.entries if entry.role in (Role.PARAMS, Role.STATE)]
    leaves = work.builds[0].leaves
    floats = {
        path
        for entry in entries
        for path in entry.reference
        if jnp.issubdtype(leaves[path].dtype, jnp.floating)
    }
    if not floats:
        return []
    smallest = min(max(1, math.prod(leaves[path].shape)) for path in floats)
    total = sum(math.prod(leaves[path].shape) for path in floats)
    keys = max(1, min(MOST_KEYS, -(-ENOUGH // smallest), MOST_NUMBERS // total))
    ours, theirs = (
        work.remember(("drawn", build, keys), lambda build=build: _drawn(work, build, keys))
        for build in work.builds
    )
    back = [work.weights.to_reference(state) for state in theirs]
    samples = [
        gathered([{path: state[path] for path in floats if path in state} for state in side])
        for side in (ours, back)
    ]
    return compare_distributions(*samples)


def _drawn(work: Comparison, build: Build, keys: int) -> list[dict[str, np.ndarray]]:
    """Returns what is drawn in the initial states of several keys."""
    states = (work.bench.fresh(build, SEED + key) for key in range(keys))
    return [{path: state[path] for path in state if _is_drawn(build, path)} for state in states]


def _is_drawn(build: Build, path: str) -> bool:
    return build.leaves[path].role in (Role.PARAMS, Role.STATE)


@dataclasses.dataclass(frozen=True)
class _Start:
    """The program that makes an initial state; many builds, such as those that differ in remat, share one.

    Args:
        lowered: the program.
        content: digest of the program and the names of its results, or what is like no other.
    """

    lowered: jax.stages.Lowered
    content: Hashable


def _start_program(work: Comparison, build: Build) -> _Start:
    def lower() -> _Start:
        traced = _created(work, build)
        with work.bench.clock.phase(f"{build.name}, initial state", "lower"):
            lowered = traced.lower()
        digest = content(lowered)
        return _Start(lowered, (digest, *_leaves(build)) if digest else object())

    return work.remember(("start program", build), lower)


def _proves(
    work: Comparison, sides: list[_Start], results: tuple[tuple[int, int], ...], alone: Alone
) -> bool:
    def proved() -> bool:
        with work.bench.clock.phase("initial states", "prove"):
            keys = [main_position(side.lowered) for side in sides]
            if set(keys[0]) != set(keys[1]):
                return False
            arguments = [(keys[0][index], keys[1][index]) for index in keys[0]]
            lowered = (side.lowered for side in sides)
            return prove(*lowered, arguments=arguments, results=results, alone=alone).proved

    return work.remember(("initial proof", *(side.content for side in sides), results, alone.results), proved)


def _run(work: Comparison, start: _Start) -> dict[str, np.ndarray]:
    with work.bench.clock.phase("initial state", "compile"):
        check_room(work.builds[0])
        compiled = start.lowered.compile(compiler_options=AS_WRITTEN)
    with work.bench.clock.phase("initial state", "execute"):
        return to_host(compiled(jax.random.key(SEED)))


CHANNEL = Channel(
    name="rng",
    about="keys of all draws over three steps, none used twice, the same on both sides; initial states",
    column="tree",
    aspect=Aspect.STATE,
    needs=Need.TRACE,
    judge=rng,
)
