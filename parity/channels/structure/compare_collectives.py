"""Compares the collectives of two programs by kind, dtype, bytes, group and number of runs."""

import collections
import itertools
from collections.abc import Hashable, Sequence

from parity.channels.structure.compare_counts import pair_up
from parity.ir.hlo.collectives import Collective
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["compare_collectives"]


def _direction(one: Collective) -> str:
    return "backward" if one.provenance.backward else "forward"


def _full(one: Collective) -> Hashable:
    return (one.kind, one.dtype, one.bytes, one.group, one.times, one.depth > 0, _direction(one))


_KEYS = (
    _full,
    lambda one: (one.kind, one.dtype, one.bytes, one.group, _direction(one)),
    lambda one: (one.kind, one.dtype, one.bytes, one.group),
    lambda one: (one.kind, one.bytes, one.times, _direction(one)),
    lambda one: (one.kind, one.dtype, one.times, _direction(one)),
)


def compare_collectives(
    reference: Sequence[Collective], candidate: Sequence[Collective], devices: int
) -> ChannelResult:
    """Compares the transfers of two programs between devices.

    Args:
        reference: collectives of the reference build.
        candidate: collectives of the candidate build.
        devices: number of devices that the programs run on; on several, two programs without any collective are equal.

    Returns:
        The ``collectives`` channel: equal, failed with findings, or skipped on a single device.

    Raises:
        ValueError: ``devices`` is not positive.
    """
    if devices < 1:
        raise ValueError(f"devices: got {devices}, expected at least 1")
    if devices == 1 and not reference and not candidate:
        return ChannelResult(
            name="collectives", verdict=Verdict.SKIPPED, detail="one device, nothing to move"
        )
    _, missing, extra = pair_up(reference, candidate, (_full,))
    combined = _combined_differently(missing, extra)
    missing, extra = ([one for one in side if _target(one) not in combined] for side in (missing, extra))
    pairs, missing, extra = pair_up(missing, extra, _KEYS)
    findings = [_differs(left, right) for left, right in pairs]
    findings += [_alone(one, count, "reference") for one, count in _grouped(missing)]
    findings += [_alone(one, count, "candidate") for one, count in _grouped(extra)]
    findings.sort(key=lambda finding: finding.where)
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    detail = _detail(reference, candidate) + (
        ", some combined differently by the compiler" if combined else ""
    )
    return ChannelResult(name="collectives", verdict=verdict, detail=detail, findings=tuple(findings))


def _target(one: Collective) -> Hashable:
    return (one.kind, one.dtype, one.group, one.times, one.depth > 0)


def _combined_differently(missing: Sequence[Collective], extra: Sequence[Collective]) -> set[Hashable]:
    """Returns the targets to which both sides move equal operands that are grouped differently.

    The compiler combines collectives of one kind and group, within limits that depend on their order. A combined
    collective has one source, so that its direction says nothing about its operands.
    """
    sides = []
    for entries in (missing, extra):
        grouped: dict[Hashable, list[tuple[int, ...]]] = collections.defaultdict(list)
        for one in entries:
            grouped[_target(one)].append(one.parts)
        sides.append(grouped)
    return {
        target
        for target in sides[0].keys() & sides[1].keys()
        if collections.Counter(itertools.chain(*sides[0][target]))
        == collections.Counter(itertools.chain(*sides[1][target]))
        and sorted(sides[0][target]) != sorted(sides[1][target])
    }


def _grouped(entries: Sequence[Collective]) -> list[tuple[Collective, int]]:
    """Joins entries that print the same into one with a count, the most bytes first."""
    groups: dict[Hashable, list[Collective]] = collections.defaultdict(list)
    for one in entries:
        groups[_full(one), one.provenance.line].append(one)
    return sorted(
        ((group[0], len(group)) for group in groups.values()), key=lambda item: -(item[0].total_bytes or 0)
    )


def _detail(reference: Sequence[Collective], candidate: Sequence[Collective]) -> str:
    texts = []
    for entries in (reference, candidate):
        known = [one.total_bytes for one in entries if one.total_bytes is not None]
        unknown = len(entries) - len(known)
        note = f" and {unknown} with unknown trips" if unknown else ""
        texts.append(f"{len(entries)} moving {sum(known):,} bytes{note}")
    return texts[0] if texts[0] == texts[1] else " -> ".join(texts)


def _times(one: Collective) -> str:
    if one.times is None:
        return "in a loop with unknown trips"
    return f"{one.times} times in loops" if one.depth else "once, outside loops"


def _text(one: Collective) -> str:
    group = "" if one.group is None else f", groups of {one.group}"
    return f"{one.dtype} {one.bytes:,} bytes{group}, {_times(one)}"


def _where(one: Collective) -> str:
    return f"{one.kind} ({one.provenance.summary})"


def _differs(left: Collective, right: Collective) -> Finding:
    before, after = left.total_bytes, right.total_bytes
    distance = "" if before is None or after is None or before == after else f"{after - before:+,} bytes"
    return Finding(
        where=_where(right),
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


def _alone(one: Collective, count: int, side: str) -> Finding:
    text = f"{f'{count} x ' if count > 1 else ''}{_text(one)}"
    texts = {"reference": "no such collective", "candidate": "no such collective", side: text}
    total = one.total_bytes
    what = "a sharding constraint that one side lacks"
    if one.kind == "all-gather":
        what = "weights gathered more often (a gather not carried, or repeated by rematerialisation)"
    elif one.kind == "collective-permute":
        what = "a rotation done by permute on one side and by slices on the other"
    return Finding(
        where=f"{_where(one)} of the {side}",
        reference=texts["reference"],
        candidate=texts["candidate"],
        distance="" if total is None else f"{total * count:,} bytes",
        cause=what,
    )
