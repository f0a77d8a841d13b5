"""The channel ``rng``: both sides draw from the same keys, none of them twice, and start from the same bits."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from parity.builds.build import SEED, Build, Group
from parity.builds.tree import Role, as_data
from parity.cases.case import Keys
from parity.channels.channel import Aspect, channel
from parity.channels.results import compared, span
from parity.channels.starts import compare_starts, recipes
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.side import Side
from parity.compare.unpaired import beginning, typed
from parity.values.rng.audit import (
    Audited,
    audit,
    compare_draws,
    named_by_leaf,
    repeated_keys,
    unforeseen_draws,
)
from parity.verdicts import SIDES, ChannelResult, Doubt, Finding, Verdict

STEPS = 3


@channel(column="tree", aspect=Aspect.STATE)
def rng(evidence: Evidence) -> ChannelResult:
    """Compares the keys of all draws over three steps, none used twice, and the initial states."""
    proved, share = evidence.same_program, evidence.session.memo.share
    reference = evidence.reference.read(_reference_draws)
    drawn = [reference, reference if proved else evidence.read(_candidate_draws)]
    fresh = [share(_audit_initial, evidence.session, build, by=(build,)) for build in evidence.builds]
    findings = [*_audited(drawn[:1] if proved else drawn), *_audited(fresh)]
    # Two builds of one flavour, such as scanned and unrolled, derive their keys from their layouts.
    shared = evidence.case.keys == Keys.SHARED and len({build.flavour for build in evidence.builds}) == 2
    if shared:
        findings += [] if findings else compare_draws(*drawn)
    starts = share(compare_starts, evidence, shared, by=(*evidence.builds, evidence.weights, shared))
    findings += starts.findings
    detail = f"{_both(drawn)}; initial state {_both(fresh)}"
    if not drawn[0].draws and not drawn[1].draws:
        detail = f"no draws; initial state {_both(fresh)}"
    if not shared:
        detail += "; the sides need not share keys" + (f"; {starts.detail}" if starts.detail else "")
    passed = starts.verdict
    if passed is Verdict.PROVED and not proved and drawn[0].draws:
        passed = Verdict.BITWISE
    return compared(detail, findings, passed)


def _both(sides: list[Audited]) -> str:
    return span(*(side.sentence() for side in sides))


def _audited(sides: list[Audited]) -> list[Finding]:
    others = [side.sentence() for side in reversed(sides)]
    found = [
        finding
        for side, audited, other in zip(SIDES, sides, others, strict=False)
        for finding in (*repeated_keys(audited, side, other), *unforeseen_draws(audited, side))
    ]
    # What both do equally explains no difference of their values.
    doubts = (Doubt.HARMLESS,) if len(sides) == 2 and len(set(others)) == 1 else ()
    return [dataclasses.replace(finding, doubts=doubts) for finding in found]


def _reference_draws(side: Side) -> Audited:
    """Follows the keys of a side whose leaves start from values that depend on their paths."""
    return _follow_keys(side, lambda path: beginning(path, side.build.abstract[path]))


def _candidate_draws(evidence: Evidence) -> Audited:
    """Follows the keys of the candidate, whose leaves start as the leaves that the map pairs with them."""
    (before, after), weights = (build.abstract for build in evidence.builds), evidence.weights
    entries = {path: entry for entry in weights.entries for path in entry.candidate}

    def start(path: str) -> np.ndarray:
        if path not in entries:
            return beginning(path, after[path])
        left = {name: beginning(name, before[name]) for name in entries[path].reference}
        return weights.to_candidate(left)[path].astype(as_data(after[path]).dtype)

    return _follow_keys(evidence.candidate, start)


def _follow_keys(side: Side, start: Callable[[str], np.ndarray]) -> Audited:
    state, returned = side.state_paths, {place: index for index, place in enumerate(side.results)}
    feedback = {
        index: returned[Group.STATE, path]
        for index, path in enumerate(state)
        if (Group.STATE, path) in returned
    }
    inputs = sorted(side.build.abstract_inputs)

    def value(index: int, step: int) -> Any:
        if index < len(state):
            return typed(side.build.abstract[state[index]], start(state[index]))
        return side.build.inputs(SEED + step - 1)[inputs[index - len(state)]]

    steps = STEPS if side.program.steps > 1 else 1
    with side.clock.book("audit"):
        return audit(side.traced.jaxpr, value, feedback, steps)


def _audit_initial(session: Session, build: Build) -> Audited:
    key, jaxpr, made = jax.random.key(SEED), session.start(build).traced.jaxpr, recipes(session, build)
    leaves = [
        (index, path)
        for index, path in enumerate(sorted(build.leaves))
        if build.leaves[path].role is not Role.OPTIMIZER or made[path].keyed
    ]
    with session.clock.book("audit"):
        drawn = audit(jaxpr, lambda index, step: key)
        return named_by_leaf(drawn, jaxpr, leaves)
