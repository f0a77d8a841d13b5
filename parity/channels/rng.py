"""The channel ``rng``: both sides draw from the same keys, none of them twice, and start from the same bits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.build import Build, Group
from parity.builds.tree import Role
from parity.cases.case import Keys
from parity.channels.channel import Aspect, Channel, Need
from parity.channels.one_sided_rng import idle_streams
from parity.channels.starts import compare_starts, created, recipes
from parity.compare.comparison import SEED, Comparison
from parity.compare.side import Side
from parity.compare.unpaired import beginning
from parity.ir.jax_internals import key_implementation
from parity.values.rng import Audited, audit, compare_draws, named_by_leaf, repeated_keys, unforeseen_draws
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL"]

STEPS = 3
SIDES = ("reference", "candidate")


def rng(work: Comparison) -> ChannelResult:
    """Keys of all draws, forward and backward, over three steps; initial states."""
    proved = work.same_program
    drawn = [_draws(work, side) for side in ((0,) if proved else (0, 1))] * (2 if proved else 1)
    fresh = [_initial(work, build) for build in work.builds]
    findings = [*_audited(drawn[:1] if proved else drawn), *_audited(fresh)]
    shared = _shares_keys(work)
    if shared:
        findings += [] if findings else compare_draws(*drawn)
    key = ("starts", shared, *work.builds, tuple(work.case.rules))
    starts = work.remember(key, lambda: compare_starts(work, shared=shared))
    findings += starts.findings
    detail = f"{_both(drawn)}; initial state {_both(fresh)}"
    if not drawn[0].draws and not drawn[1].draws:
        detail = f"no draws; initial state {_both(fresh)}"
    if not shared:
        detail += "; the sides need not share keys" + (f"; {starts.power}" if starts.power else "")
    verdict = Verdict.FAILED if findings else starts.verdict
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
    key, jaxpr, made = jax.random.key(SEED), created(work, build).jaxpr, recipes(work, build)
    leaves = [
        (index, path)
        for index, path in enumerate(sorted(build.leaves))
        if build.leaves[path].role is not Role.OPTIMIZER or made[path].keyed
    ]
    with work.bench.clock.book("audit"):
        drawn = audit(f"create {build.name}", jaxpr, lambda index, step: key)
        return named_by_leaf(drawn, jaxpr, leaves)


CHANNEL = Channel(
    name="rng",
    about="keys of all draws over three steps, none used twice, the same on both sides; initial states",
    column="tree",
    aspect=Aspect.STATE,
    needs=Need.TRACE,
    judge=rng,
)
