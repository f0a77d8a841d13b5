"""Shared by the channels of values: the ladder on outputs of both sides, and guards of measured and proved cases."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from parity.builds.build import Group
from parity.builds.tree import Role
from parity.builds.weights.map import normalise
from parity.builds.weights.modules import moment_of
from parity.channels.channel import NUMBERS
from parity.channels.results import compared, vacuous
from parity.compare.evidence import Evidence
from parity.compare.runs import changed_choices, judged_runs, only_ties
from parity.compare.sample import idle_outputs
from parity.compare.side import INPUT, Side
from parity.compare.stress import stress
from parity.ir.jax_internals import is_transposed
from parity.ir.jaxprs import equations, origin
from parity.values.ladder import climb
from parity.values.static import Content, Fact, result_facts
from parity.values.vacuity import constant_leaves, is_declared, not_finite, same_buffers, vacuous_finding
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict, one_sided


def measured(
    evidence: Evidence, group: Group, guard: Callable[[Mapping[str, np.ndarray]], list[Finding]]
) -> ChannelResult:
    """Runs both sides and returns the rung that their outputs of a group reach.

    Args:
        guard: finds properties of the reference's outputs that make the check vacuous.
    """
    if nothing := nothing_returned(evidence, group):
        return vacuous(nothing, "nothing to compare")
    if not evidence.reference.backend.executes:
        return not_run(evidence)
    runs = evidence.read(judged_runs)
    reference, candidate = (outputs.get(group, {}) for outputs in runs.outputs)
    if missing := missing_outputs(reference, candidate):
        return compared("outputs differ", missing)
    result = evidence.read(_usual)[group]
    if result.verdict is Verdict.FAILED and (exact := evidence.accepted_exact_proof) is not None:
        result = _with(result, f"not shown in exact arithmetic: {exact.refusal or 'another function'}")
    elif result.verdict is not Verdict.FAILED and evidence.exact_claim:
        bits = "equal bits on the data that ran" if result.verdict is Verdict.BITWISE else result.detail
        result = dataclasses.replace(result, detail=f"{evidence.exact_claim}; {bits}")
    if evidence.read(only_ties):
        result = _with(result, f"routing forced equal past {ties(evidence)}")
    result = _contracted(evidence, group, _stressed(evidence, group, result))
    guards = constant_leaves(group, {}) if not reference else guard(reference)
    guards += not_finite(reference, evidence.case.accept.not_finite) + same_buffers(reference, candidate)
    if guards and result.verdict is not Verdict.FAILED:
        return vacuous(guards)
    return result


def _usual(evidence: Evidence) -> dict[Group, ChannelResult]:
    """Returns the rung on the usual batch of each group of outputs that is judged and that both sides have."""
    runs, found = evidence.read(judged_runs), {}
    for group in (one for one in NUMBERS if one in (evidence.judged or NUMBERS)):
        left, right = (outputs.get(group, {}) for outputs in runs.outputs)
        if not missing_outputs(left, right):
            found[group] = climb(left, right, runs.judge(group))
    return found


def _fails_anyway(evidence: Evidence) -> str:
    """Returns a channel that fails on the usual batch, so that the case does; empty if none is known to."""
    if evidence.case.accept.waivers:
        return ""
    for group, found in evidence.read(_usual).items():
        applies = group in evidence.judged and group not in evidence.case.accept.not_applicable
        if applies and found.verdict is Verdict.FAILED:
            return group
    return ""


def _with(result: ChannelResult, words: str) -> ChannelResult:
    return dataclasses.replace(result, detail=f"{result.detail}; {words}")


def _stressed(evidence: Evidence, group: Group, result: ChannelResult) -> ChannelResult:
    """Compares on stress inputs too, if programs that are known to differ gave numbers that agree."""
    if result.verdict is Verdict.FAILED or not evidence.unproved:
        return result
    if jax.process_count() > 1:  # a process that finds a difference would run again, alone
        return _with(result, "not proved, and stress inputs run in one process only")
    if failing := _fails_anyway(evidence):
        return _with(result, f"not proved, and not compared on stress inputs, because {failing} fails")
    found = evidence.read(stress)
    if findings := found.findings.get(group, ()):
        detail = f"{result.verdict} on the usual batch, but differs on stress inputs"
        return dataclasses.replace(result, verdict=Verdict.FAILED, detail=detail, findings=findings)
    return _with(result, f"not proved, but {found.detail}")


def _contracted(evidence: Evidence, group: Group, result: ChannelResult) -> ChannelResult:
    """Compares with contraction too, if a case requires equal bits of programs that are proved only `reordered`."""
    if (
        Verdict.REORDERED not in evidence.required.rungs
        or evidence.rung is not Verdict.REORDERED
        or result.verdict is not Verdict.BITWISE
        or not getattr(evidence.reference.backend, "options", ())
    ):
        return result
    runs = evidence.read(judged_runs)
    left, right = (outputs.get(group, {}) for outputs in runs.contracted)
    found = climb(left, right, runs.judge(group))
    if found.verdict is Verdict.BITWISE:
        detail = f"{result.detail}, with and without contraction of products and sums"
        return dataclasses.replace(result, detail=detail)
    return _with(found, "bitwise without contraction, not with it")


def nothing_returned(evidence: Evidence, group: Group) -> list[Finding]:
    """Returns a finding if no side returns a leaf of the group."""
    returned = any(side.traced.out_info.get(group) for side in evidence.sides)
    return [] if returned else constant_leaves(group, {})


def missing_outputs(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Finding]:
    """Finds the outputs that only one side returns."""
    return [
        Finding(
            where=path,
            **one_sided(SIDES[path in candidate], "returned", "not returned"),
            cause="an output that only one side returns",
            next_step='name outputs equally; return a tree of gradients as {"values": ..., "gradients": ...}',
        )
        for path in sorted(set(reference) ^ set(candidate))
    ]


def not_run(evidence: Evidence) -> ChannelResult:
    """Returns the verdict ``reordered`` if the proof suffices, else ``open``: the backend runs nothing."""
    backend = evidence.reference.backend.name
    reordered = evidence.rung is Verdict.REORDERED and evidence.proof
    if reordered and evidence.required_of_numbers.met_by(Verdict.FLOOR):
        rules = f" and rules ({', '.join(reordered.rules)})" if reordered.rules else ""
        detail = f"equal up to the order of operands of float operations{rules}; {backend} runs nothing"
        return ChannelResult(verdict=Verdict.REORDERED, detail=detail)
    why = f"only reordered where {evidence.required_of_numbers} is required" if reordered else "not proved"
    detail = f"not compared: {why}, and {backend} runs nothing; run the case on cpu as well"
    return ChannelResult(verdict=Verdict.OPEN, detail=detail)


def ties(evidence: Evidence) -> str:
    """Returns the number of tokens whose choice depends on rounding, as text."""
    count = len(evidence.read(changed_choices))
    return f"{count} token{'s' if count > 1 else ''} at a tie"


DECLARE = "look at what the program reads and returns, or declare it in the pair"
NAN = "NaN in every entry, for all inputs"
PARAMETERS, INPUTS, REST = "parameters", "inputs", "other state"


def _known_facts(side: Side) -> dict[str, dict[str, Fact]]:
    """Returns ``{group: {path: fact}}`` of the lowered program's results, by source; nothing is compiled."""
    program, leaves = side.operations, side.build.leaves
    names = {normalise(path) for path, leaf in leaves.items() if leaf.role is Role.PARAMS}
    parts = {name.partition("/")[2] for name in names}  # an average may be of one of several models
    owners = names | {name for name in parts if "/" in name}

    def source(kind: str, path: str) -> str:
        if kind == INPUT:
            return INPUTS
        if leaves[path].role is Role.PARAMS or moment_of(normalise(path), owners):  # an average of them, too
            return PARAMETERS
        return REST

    labels: list[frozenset[str]] = [frozenset()] * len(program.body.parameters)
    for position, argument in side.read_arguments.items():
        labels[position] = frozenset({source(*argument)})
    results: dict[str, dict[str, Fact]] = {group: {} for group, _ in side.results}
    for (group, path), fact in zip(side.results, result_facts(program, labels), strict=True):
        results[group][path] = fact
    return results


def _facts(evidence: Evidence, group: Group) -> dict[str, Fact]:
    return evidence.reference.read(_known_facts).get(group, {})


def idle_values(evidence: Evidence) -> list[Finding]:
    """Finds values that do not depend on parameters or on inputs, and values that are NaN or constant."""
    known, build = _facts(evidence, Group.VALUES), evidence.reference.build
    if not known:
        return nothing_returned(evidence, Group.VALUES)
    has = {
        PARAMETERS: any(leaf.role is Role.PARAMS for leaf in build.leaves.values()),
        INPUTS: bool(build.abstract_inputs),
    }
    reached = frozenset().union(*(fact.sources for fact in known.values()))
    idle = [
        vacuous_finding(
            "values", f"no value depends on the {label}", f"values that the {label} move", DECLARE
        )
        for label, given in has.items()
        if given and label not in reached
    ]
    return _guards(evidence, Group.VALUES, idle)


def zero_gradients(evidence: Evidence) -> list[Finding]:
    """Finds gradients that are NaN, and gradients that are zero by the program's text or on data."""
    dead = [
        vacuous_finding(path, "a gradient of zeros, for all inputs", "a gradient that is not zero", DECLARE)
        for path, fact in _facts(evidence, Group.GRADIENTS).items()
        if fact.content is Content.ZERO and not is_declared(path, evidence.case.accept.zero_gradients)
    ]
    return _guards(evidence, Group.GRADIENTS, dead)


def idle_state(evidence: Evidence) -> list[Finding]:
    """Finds parameters that a step returns unchanged, and NaN."""
    still = [
        vacuous_finding(
            path, "returned as it was taken, for all inputs", "a parameter that the program moves", DECLARE
        )
        for path in sorted(evidence.reference.read(_kept) if trains(evidence) else ())
        if evidence.reference.build.leaves[path].role is Role.PARAMS
        and not is_declared(path, evidence.case.accept.zero_gradients)
    ]
    return _guards(evidence, Group.STATE, still)


def _kept(side: Side) -> set[str]:
    jaxpr = side.traced.jaxpr.jaxpr
    taken = dict(zip(jaxpr.invars, side.state_paths, strict=False))
    results = zip(side.results, jaxpr.outvars, strict=True)
    return {
        path
        for (group, path), out in results
        if group == Group.STATE and taken.get(origin(jaxpr, out)) == path
    }


def trains(evidence: Evidence) -> bool:
    """True unless both programs move only other state than parameters and compute no gradient, as a decode step."""
    return not all(side.read(_decodes) for side in evidence.sides)


def _decodes(side: Side) -> bool:
    moved = {path for group, path in side.results if group == Group.STATE} - side.read(_kept)
    roles = {side.build.leaves[path].role for path in moved}
    differentiated = any(map(is_transposed, equations(side.traced.jaxpr)))
    return bool(roles) and Role.PARAMS not in roles and not differentiated


def _guards(evidence: Evidence, group: Group, idle: list[Finding]) -> list[Finding]:
    """Adds NaN in the program's text; without either, checks one run on ordinary data if that is cheap."""
    found = nothing_returned(evidence, group) + idle
    if constant := [path for path, fact in _facts(evidence, group).items() if fact.content is Content.NAN]:
        advice = "look for a constant that is NaN"
        return found + [vacuous_finding(path, NAN, "numbers", advice) for path in constant]
    return found if idle else found + idle_outputs(evidence, group)
