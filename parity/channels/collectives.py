"""The channel ``collectives``: transfers between devices by kind, dtype, bytes, group and number of runs."""

import dataclasses
import itertools
from collections.abc import Hashable, Sequence

from parity.cases.accepted import budgets_for
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.report_rows import collective_table
from parity.channels.results import budgeted, compared, pair_up, span, times
from parity.compare.evidence import Evidence
from parity.ir.hlo.collectives import Collective, read_collectives
from parity.ir.jaxprs import equations
from parity.ir.location import equation_source
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict, grouped, one_sided

NUMBER = 8
"""Maximum bytes of an operand that is one number; the values of both sides show if one is not reduced."""


def _one_device(evidence: Evidence) -> str:
    several = any(mesh.size > 1 for mesh in evidence.case.meshes)
    return "" if several else "one device, nothing to move"


@channel(
    column="coll",
    aspect=Aspect.STRUCTURE,
    settled_by_proof=SettledByProof.UNLESS_INSPECTED,
    applies=_one_device,
)
def collectives(evidence: Evidence) -> ChannelResult:
    """Compares transfers between devices: kind, dtype, bytes, group, number of times."""
    left, right = (read_collectives(side.optimised) for side in evidence.compiling())
    result = compare_collectives(left, right)
    found = (*_checkpoints(evidence), *result.findings) if result.findings else ()
    tables = {"collectives": collective_table(left, right)}
    result = dataclasses.replace(result, findings=found, tables=tables)
    moved = [sum(one.total_bytes or 0 for one in side) for side in (left, right)]
    budgets = budgets_for("collectives", evidence.case.accept.budgets)
    return budgeted(result, budgets, {"bytes": (moved[0], moved[1]), "count": (len(left), len(right))})


def _checkpoints(evidence: Evidence) -> list[Finding]:
    """Returns the checkpoints whose recomputation only one side protects from the compiler, if no operation differs."""
    if evidence.rung is Verdict.UNPROVED:
        return []
    flags = [
        {op.params["prevent_cse"]: op for op in equations(side.traced.jaxpr) if "prevent_cse" in op.params}
        for side in evidence.sides
    ]
    if any(len(side) != 1 for side in flags) or flags[0].keys() == flags[1].keys():
        return []
    texts = [
        f"prevent_cse={flag} at {equation_source(op).against(None)}"
        for flag, op in (*flags[0].items(), *flags[1].items())
    ]
    cause = "recomputation that the compiler undoes on the side without it"
    return [Finding(where="checkpoint", reference=texts[0], candidate=texts[1], cause=cause)]


def _full(one: Collective) -> Hashable:
    return (one.kind, one.dtype, one.bytes, one.group, one.times, one.depth > 0, one.provenance.backward)


_KEYS = (
    _full,
    lambda one: (one.kind, one.dtype, one.bytes, one.group, one.provenance.backward),
    lambda one: (one.kind, one.dtype, one.bytes, one.group),
    lambda one: (one.kind, one.bytes, one.times, one.provenance.backward),
    lambda one: (one.kind, one.dtype, one.times, one.provenance.backward),
)


def compare_collectives(reference: Sequence[Collective], candidate: Sequence[Collective]) -> ChannelResult:
    """Compares the transfers of two programs between devices."""
    _, missing, extra = pair_up(reference, candidate, (_full,))
    combined = _combined_differently(missing, extra)
    missing, extra = ([one for one in side if _target(one) not in combined] for side in (missing, extra))
    pairs, missing, extra = pair_up(missing, extra, _KEYS)
    findings = [_differs(left, right) for left, right in pairs]
    for side, alone in zip(SIDES, (missing, extra), strict=True):
        findings += [_alone(one, count, side) for one, count in _counted(alone)]
    findings.sort(key=lambda finding: finding.where)
    note = ", some combined differently by the compiler" if combined else ""
    return compared(span(_detail(reference), _detail(candidate)) + note, findings)


def _target(one: Collective) -> Hashable:
    return (one.kind, one.dtype, one.group, one.times, one.depth > 0)


def _combined_differently(missing: Sequence[Collective], extra: Sequence[Collective]) -> set[Hashable]:
    """Returns the targets to which both sides move equal arrays that are grouped differently, or with other numbers.

    The compiler combines collectives of one kind and group, within limits that depend on their order. A combined
    collective has one source, so that its direction does not depend on its operands. How a loss is written decides
    which of its numbers move with the arrays.
    """
    left, right = (
        {target: [one.parts for one in moved] for target, moved in grouped(side, _target).items()}
        for side in (missing, extra)
    )

    def are_equal(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> bool:
        flat = [sorted(itertools.chain(*parts)) for parts in (one, other)]
        arrays = [[part for part in parts if part > NUMBER] for parts in flat]
        return sorted(one) != sorted(other) and (flat[0] == flat[1] or arrays[0] == arrays[1] != [])

    return {target for target in left.keys() & right.keys() if are_equal(left[target], right[target])}


def _counted(entries: Sequence[Collective]) -> list[tuple[Collective, int]]:
    """Joins entries that print the same into one with a count, the most bytes first."""
    groups = grouped(entries, lambda one: (_full(one), one.provenance.frame.line)).values()
    return sorted(((group[0], len(group)) for group in groups), key=lambda item: -(item[0].total_bytes or 0))


def _detail(entries: Sequence[Collective]) -> str:
    known = [one.total_bytes for one in entries if one.total_bytes is not None]
    unknown = len(entries) - len(known)
    note = f" and {unknown} with unknown trips" if unknown else ""
    return f"{len(entries)} moving {sum(known):,} bytes{note}"


def _text(one: Collective) -> str:
    group = "" if one.group is None else f", groups of {one.group}"
    often = f"{one.times} times in loops" if one.depth else "once, outside loops"
    if one.times is None:
        often = "in a loop with unknown trips"
    return f"{one.dtype} {one.bytes:,} bytes{group}, {often}"


def _differs(left: Collective, right: Collective) -> Finding:
    before, after = left.total_bytes, right.total_bytes
    distance = "" if before is None or after is None or before == after else f"{after - before:+,} bytes"
    return Finding(
        where=f"{right.kind} ({right.provenance.summary})",
        reference=_text(left),
        candidate=_text(right),
        distance=distance,
        cause=_cause(left, right),
        next_step=f"reference: {left.provenance.summary}",
    )


def _cause(left: Collective, right: Collective) -> str:
    if (left.depth > 0) != (right.depth > 0):
        side = "candidate" if right.depth else "reference"
        return f"a {right.kind} inside a loop of the {side} that the other does once outside"
    if left.times != right.times:
        return "loops with other trips, see the loops channel"
    if left.dtype != right.dtype:
        return "a cast before the collective on one side and after it on the other"
    if left.group != right.group:
        return "another mesh axis, or another sharding of the same array"
    if left.bytes != right.bytes:
        return "another array or another sharding of the same array"
    return "moved between forward and backward (rematerialisation or saved residuals)"


_ALONE = {
    "all-gather": "weights gathered more often (a gather not carried, or repeated by rematerialisation)",
    "collective-permute": "a rotation done by permute on one side and by slices on the other",
}


def _alone(one: Collective, count: int, side: str) -> Finding:
    total = one.total_bytes
    return Finding(
        where=f"{one.kind} ({one.provenance.summary}) of the {side}",
        **one_sided(side, f"{times(count)}{_text(one)}", "no such collective"),
        distance="" if total is None else f"{total * count:,} bytes",
        cause=_ALONE.get(one.kind, "a sharding constraint that one side lacks"),
    )
