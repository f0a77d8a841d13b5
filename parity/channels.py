"""The channels: each looks at one aspect of a comparison and answers with a verdict and findings."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.attest import attest
from parity.build import Group
from parity.checkpoints import checkpoint
from parity.comparison import SEED, Comparison
from parity.flags import flags
from parity.ladder import climb
from parity.prove import source_files
from parity.randomness import rng
from parity.retrace import retrace
from parity.shardings import compare_axes, compare_shardings
from parity.structure import (
    MEMORY_BUDGETS,
    PACKING_BUDGETS,
    Budget,
    Loops,
    Memory,
    budgets_for,
    compare_collectives,
    compare_donation,
    compare_dots,
    compare_loops,
    compare_memory,
    lowered_loops,
    optimised_loops,
    read_collectives,
    read_donation,
    read_dtypes,
    read_memory,
)
from parity.structure.traced import compare_passed_through
from parity.transforms import Identity
from parity.tree import Role
from parity.vacuity import constant_leaves, dead_gradients, not_finite, nothing_moved, same_buffers
from parity.verdicts import ChannelResult, Finding, Verdict
from parity.weights import MapError

__all__ = ["CHANNELS"]


def program(work: Comparison) -> ChannelResult:
    """Which framework made each side, and whether both are the same program."""
    findings: list[Finding] = []
    for side, other in ((work.reference, work.candidate), (work.candidate, work.reference)):
        same = side.build.flavour is other.build.flavour
        files = source_files(side.operations).stack
        findings += attest(side.build, files, () if same else other.build.sources)
    flavours = " and ".join(side.build.flavour for side in (work.reference, work.candidate))
    attested = f"attested {flavours}"
    if not all(build.sources for build in work.builds):
        attested = f"claims {flavours}, not attested: the models have no source files of their own"
    if findings:
        detail = f"claimed {flavours}"
        return ChannelResult(name="program", verdict=Verdict.FAILED, detail=detail, findings=tuple(findings))
    if work.proof is None:
        detail = f"{attested}; no proof, layouts or meshes differ"
        return ChannelResult(name="program", verdict=Verdict.EQUAL, detail=detail)
    unproved = Verdict.FAILED if work.case.lowest is Verdict.PROVED else Verdict.UNPROVED
    verdict = Verdict.PROVED if work.proof.proved else unproved
    return ChannelResult(
        name="program",
        verdict=verdict,
        detail=f"{attested}; {work.proof.sentence()}",
        findings=work.proof.findings(),
        measures={"operations": sum(work.proof.operations), "seconds": work.proof.seconds},
    )


def tree(work: Comparison) -> ChannelResult:
    """Paths, shapes, dtypes, roles and logical axes of all state leaves."""
    leaves = tuple(build.leaves for build in work.builds)
    try:
        entries = work.weights.entries
    except MapError as error:
        return ChannelResult(
            name="tree", verdict=Verdict.FAILED, detail="leaves without a partner", findings=_leftovers(error)
        )
    findings: list[Finding] = []
    for entry in entries:
        dtypes = [
            {side[path].dtype for path in paths}
            for side, paths in zip(leaves, (entry.reference, entry.candidate), strict=True)
        ]
        if dtypes[0] != dtypes[1]:
            findings.append(
                Finding(
                    where=entry.candidate[0],
                    reference=", ".join(sorted(dtypes[0])),
                    candidate=", ".join(sorted(dtypes[1])),
                    cause="one side creates the leaf in another dtype",
                    next_step="pass the parameter dtype where the leaf is created",
                )
            )
        findings += compare_axes(entry, leaves)
    moved = sum(not isinstance(entry.transform, Identity) for entry in entries)
    detail = f"{len(leaves[0])} leaves" + (f", {moved} of {len(entries)} transformed" if moved else "")
    if guessed := work.weights.guessed:
        detail += (
            f", {len(guessed)} with a guessed axis: {guessed[0].reference[0]}; a weight rule would tell it"
        )
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    return ChannelResult(name="tree", verdict=verdict, detail=detail, findings=tuple(findings))


def _leftovers(error: MapError) -> tuple[Finding, ...]:
    sides = (("reference", error.reference), ("candidate", error.candidate))
    return tuple(
        Finding(
            where=leaf.path,
            reference=f"{leaf.dtype}{list(leaf.shape)}" if side == "reference" else "no such leaf",
            candidate=f"{leaf.dtype}{list(leaf.shape)}" if side == "candidate" else "no such leaf",
            cause=f"a {leaf.role} leaf that only the {side} has",
            next_step="add it to the other side, or give the pair a weight rule",
        )
        for side, leaves in sides
        for leaf in leaves
    )


def _missing(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Finding]:
    return [
        Finding(
            where=path,
            reference="returned" if path in reference else "not returned",
            candidate="returned" if path in candidate else "not returned",
            cause="an output that only one side returns",
        )
        for path in sorted(set(reference) ^ set(candidate))
    ]


def _not_run(name: str, work: Comparison) -> ChannelResult:
    backend = work.reference.backend.name
    detail = f"not compared: not proved, and {backend} runs nothing; run the case on cpu as well"
    return ChannelResult(name=name, verdict=Verdict.OPEN, detail=detail)


def _measured(
    work: Comparison, group: Group, guard: Callable[[Mapping[str, np.ndarray]], list[Finding]]
) -> ChannelResult:
    if not any(side.traced.out_info.get(group) for side in (work.reference, work.candidate)):
        findings = tuple(constant_leaves(group, {}))
        return ChannelResult(
            name=group, verdict=Verdict.VACUOUS, detail="nothing to compare", findings=findings
        )
    if work.settled:
        return ChannelResult(name=group, verdict=Verdict.PROVED, detail="equal for all inputs")
    if not work.reference.backend.executes:
        return _not_run(group, work)
    reference, candidate = (outputs.get(group, {}) for outputs in work.outputs)
    missing = _missing(reference, candidate)
    if missing:
        return ChannelResult(
            name=group, verdict=Verdict.FAILED, detail="outputs differ", findings=tuple(missing)
        )
    result = climb(group, reference, candidate, work.judge(group))
    if work.only_ties:
        detail = f"{result.detail}; routing forced equal past {_ties(work)}"
        result = dataclasses.replace(result, detail=detail)
    guards = constant_leaves(group, {}) if not reference else guard(reference)
    guards += not_finite(reference, work.case.not_finite) + same_buffers(reference, candidate)
    if guards and result.verdict is not Verdict.FAILED:
        return ChannelResult(
            name=group, verdict=Verdict.VACUOUS, detail="a check that cannot fail", findings=tuple(guards)
        )
    return result


def values(work: Comparison) -> ChannelResult:
    """Losses, logits and metrics, on a batch and a state in which nothing is constant."""
    batch = work.builds[0].inputs(SEED)
    return _measured(
        work,
        Group.VALUES,
        lambda reference: constant_leaves("batch", batch) + constant_leaves("values", reference),
    )


def gradients(work: Comparison) -> ChannelResult:
    """Gradients of all parameters under the batch's loss scale."""
    return _measured(
        work, Group.GRADIENTS, lambda reference: dead_gradients(reference, work.case.zero_gradients)
    )


def state(work: Comparison) -> ChannelResult:
    """All state after the first and the last step."""

    def guard(after: Mapping[str, np.ndarray]) -> list[Finding]:
        steps = work.reference.program.steps
        last = f"step{steps}/" if steps > 1 else ""
        leaves = work.builds[0].leaves
        before = {
            last + path: array for path, array in work.state.items() if leaves[path].role is Role.PARAMS
        }
        return nothing_moved(before, after, [f"*{glob}" for glob in work.case.zero_gradients])

    return _measured(work, Group.STATE, guard)


def routing(work: Comparison) -> ChannelResult:
    """Which experts each token chooses, and by what margin; a choice that rounding decides is a tie."""
    if work.settled:
        return ChannelResult(name="routing", verdict=Verdict.PROVED, detail="equal for all inputs")
    if not work.reference.backend.executes:
        return _not_run("routing", work)
    ours, theirs = (side.traced.out_info.get(Group.ROUTING, {}) for side in (work.reference, work.candidate))
    if set(ours) != set(theirs):
        findings = tuple(_missing(ours, theirs))
        return ChannelResult(
            name="routing", verdict=Verdict.FAILED, detail="outputs differ", findings=findings
        )
    findings = tuple(flip.finding() for flip in work.flips)
    measures = {"flips": len(findings), "ties": sum(flip.is_tie for flip in work.flips)}
    if not findings:
        return ChannelResult(
            name="routing", verdict=Verdict.EQUAL, detail="every token chooses alike", measures=measures
        )
    if work.only_ties:
        widest = max(flip.margin for flip in work.flips)
        detail = f"{_ties(work)}, margins up to {widest:.3g}; values are compared with routing forced equal"
        return ChannelResult(
            name="routing", verdict=Verdict.TIE, detail=detail, findings=findings, measures=measures
        )
    detail = f"{len(findings)} tokens choose otherwise, {measures['ties']} of them at a tie"
    return ChannelResult(
        name="routing", verdict=Verdict.FAILED, detail=detail, findings=findings, measures=measures
    )


def _ties(work: Comparison) -> str:
    count = len(work.flips)
    return f"{count} token{'s' if count > 1 else ''} at a tie"


def dots(work: Comparison) -> ChannelResult:
    """Types of dots, exponentials, sums and roots, as the source asks for them."""
    if work.settled:
        return ChannelResult(name="dots", verdict=Verdict.PROVED, detail="the same program")
    return compare_dots(read_dtypes(work.reference.lowered), read_dtypes(work.candidate.lowered))


def sharding(work: Comparison) -> ChannelResult:
    """Logical axes, resolved specs and compiled input shardings of all state leaves."""
    return compare_shardings(work.reference, work.candidate, work.weights, proved=lambda: work.compiles_alike)


def loops(work: Comparison) -> ChannelResult:
    """While loops before and after optimisation; a proof leaves only the carries of the former open."""
    sides = (work.reference, work.candidate) if work.compiles_alike else work.compiling
    ours, theirs = (
        Loops(
            lowered=lowered_loops(side.lowered),
            optimised=None if work.compiles_alike else optimised_loops(side.optimised),
        )
        for side in sides
    )
    budgets = budgets_for("loops", work.case.budgets)
    slack = budgets["carry_bytes"].slack if "carry_bytes" in budgets else 0
    result = compare_loops(ours, theirs, slack)
    counts = [tree.optimised.count if tree.optimised else 0 for tree in (ours, theirs)]
    result = _budgeted(result, budgets, {"count": (counts[0], counts[1])})
    returned = compare_passed_through(*(side.traced.jaxpr for side in sides))
    if returned:
        findings = (*returned, *result.findings)
        return dataclasses.replace(result, verdict=Verdict.FAILED, findings=findings)
    return result


def collectives(work: Comparison) -> ChannelResult:
    """What moves between devices: kind, dtype, bytes, group, how often."""
    devices = max(mesh.size for mesh in work.case.meshes)
    if devices == 1:
        detail = "one device, nothing to move"
        return ChannelResult(name="collectives", verdict=Verdict.SKIPPED, detail=detail)
    if work.compiles_alike:
        return ChannelResult(name="collectives", verdict=Verdict.PROVED, detail="the same program")
    ours, theirs = (read_collectives(side.optimised) for side in work.compiling)
    result = compare_collectives(ours, theirs, devices)
    moved = [sum(one.total_bytes or 0 for one in side) for side in (ours, theirs)]
    counts = [len(side) for side in (ours, theirs)]
    budgets = budgets_for("collectives", work.case.budgets)
    return _budgeted(result, budgets, {"bytes": (moved[0], moved[1]), "count": (counts[0], counts[1])})


def _budgeted(
    result: ChannelResult, budgets: Mapping[str, Budget], totals: Mapping[str, tuple[int, int]]
) -> ChannelResult:
    """Lets a difference pass whose totals are all budgeted and within; the findings stay in the record."""
    if result.verdict is not Verdict.FAILED or not set(budgets) & set(totals):
        return result
    apart = {name: numbers for name, numbers in totals.items() if numbers[0] != numbers[1]}
    if not all(name in budgets and budgets[name].allows(*numbers) for name, numbers in apart.items()):
        return result
    used = [
        f"{name} {ours:,} -> {theirs:,}, budget {budgets[name].sentence()}"
        for name, (ours, theirs) in totals.items()
        if name in budgets
    ]
    return dataclasses.replace(result, verdict=Verdict.EQUAL, detail=f"{result.detail}; {'; '.join(used)}")


def memory(work: Comparison) -> ChannelResult:
    """Argument, output and temp bytes of the compiled programs, and which arguments they reuse in place."""
    if work.compiles_alike:
        return ChannelResult(name="memory", verdict=Verdict.PROVED, detail="the same program")
    sides = work.compiling
    ours, theirs = (read_memory(side.compiled) for side in sides)
    own = budgets_for("memory", work.case.budgets)
    result = compare_memory(ours, theirs, {**MEMORY_BUDGETS, **own})
    if result.verdict is Verdict.VACUOUS:
        return result
    measures = _ratio(ours, theirs)
    if result.verdict is Verdict.FAILED and work.proof is not None and work.proof.proved:
        result, again = _packed(work, result, ours, theirs, own)
        measures |= again
    donation = compare_donation(*(read_donation(side.optimised) for side in sides))
    failed = Verdict.FAILED in (result.verdict, donation.verdict)
    return dataclasses.replace(
        result,
        verdict=Verdict.FAILED if failed else result.verdict,
        detail=f"{result.detail}; {donation.detail}",
        findings=(*result.findings, *donation.findings),
        measures=measures,
    )


def _packed(
    work: Comparison, failed: ChannelResult, ours: Memory, theirs: Memory, own: Mapping[str, Budget]
) -> tuple[ChannelResult, dict[str, float]]:
    """Asks whether the order of arguments, which a proof leaves open, is all that makes the candidate need more."""
    within = compare_memory(ours, theirs, {**PACKING_BUDGETS, **own})
    if within.verdict is Verdict.FAILED:
        return failed, {}
    again = read_memory(work.reordered.compiled)
    same_order = compare_memory(ours, again, {**MEMORY_BUDGETS, **own})
    measures = {f"{name}_in_the_same_order": value for name, value in _ratio(ours, again).items()}
    if same_order.verdict is Verdict.FAILED:
        return failed, measures
    needs = f"temp {again.values['temp']:,} with its arguments in the reference's order"
    return dataclasses.replace(within, detail=f"{within.detail}, {needs}"), measures


def _ratio(reference: Memory, candidate: Memory) -> dict[str, float]:
    ours, theirs = (side.values.get("temp") for side in (reference, candidate))
    if ours is None or theirs is None or (ours == 0 < theirs):
        return {}
    return {"temp_ratio": theirs / ours if ours else 1.0}


CHANNELS: Mapping[str, Callable[[Comparison], ChannelResult]] = {
    "program": program,
    "tree": tree,
    "rng": rng,
    "values": values,
    "gradients": gradients,
    "state": state,
    "routing": routing,
    "dots": dots,
    "sharding": sharding,
    "loops": loops,
    "collectives": collectives,
    "memory": memory,
    "retrace": retrace,
    "flags": flags,
    "checkpoint": checkpoint,
}
