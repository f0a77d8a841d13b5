"""Compares loop trees: reports missing, extra and different loops of each side."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Sequence

from parity.ir.hlo.model import Leaf, Loop, LoopTree
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["Loops", "compare_loops"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loops:
    """The loop trees of one program; a stage that was not read is None.

    Args:
        lowered: before optimisation.
        optimised: after it.
    """

    lowered: LoopTree | None = None
    optimised: LoopTree | None = None


COUNTER = 4
"""Bytes of a counter."""

# From the surest match to the weakest; a pair that only a weak key joins gives a finding as text.
_KEYS: tuple[Callable[[Loop], object], ...] = (
    lambda loop: (loop.signature, loop.provenance.tags),
    lambda loop: loop.signature,
    lambda loop: (loop.trips, loop.provenance.tags, loop.count),
    lambda loop: (loop.trips, loop.provenance.tags),
    lambda loop: (loop.provenance.tags, loop.count, loop.carries),
    lambda loop: loop.provenance.tags,
)


def compare_loops(
    reference: Loops,
    candidate: Loops,
    slack_bytes: int = 0,
    *,
    carried: Collection[str] = (),
    library: str = "",
) -> ChannelResult:
    """Compares the loops of two programs, lowered and optimised.

    Loops match by structure and name stack, never by source file or by the order of carries.

    Args:
        reference: loops of the reference build.
        candidate: loops of the candidate build.
        slack_bytes: number of carry bytes by which two matched loops may differ (a counter one side carries).
        carried: arrays such as ``u32[3]`` that only one side may carry through its loops.
        library: folder of library code that users cannot change; scanned inputs that its loops forward are notes.

    Returns:
        The ``loops`` channel: equal, failed with findings, or vacuous if a side has no operation at all or no stage was
        read. A candidate that carries the same bytes in fewer arrays, or fewer counters before optimisation if
        ``library`` is given, is a note.
    """
    parts, findings, notes, stages = [], [], [], 0
    for stage in ("lowered", "optimised"):
        first, second = getattr(reference, stage), getattr(candidate, stage)
        if first is None and second is None:
            continue
        if first is None or second is None:
            side = "reference" if first is None else "candidate"
            findings.append(_unread(stage, side))
            continue
        for side, tree in (("reference", first), ("candidate", second)):
            if not tree.operations:
                text = f"the {stage} program of the {side} has no operations"
                return ChannelResult(name="loops", verdict=Verdict.VACUOUS, detail=text)
        stages += 1
        parts.append(_detail(stage, first, second))
        work = _Comparison(stage, slack_bytes, frozenset(carried), library)
        findings += work.level(first.loops, second.loops, "")
        notes += work.notes
    if not stages and not findings:
        return ChannelResult(name="loops", verdict=Verdict.VACUOUS, detail="no loop tree was read")
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    detail = ", ".join(parts)
    return ChannelResult(
        name="loops", verdict=verdict, detail=detail, findings=tuple(findings), notes=tuple(notes)
    )


def _unread(stage: str, side: str) -> Finding:
    texts = {"reference": "read", "candidate": "read", side: "not read"}
    return Finding(where=f"{stage} loops", reference=texts["reference"], candidate=texts["candidate"])


def _detail(stage: str, first: LoopTree, second: LoopTree) -> str:
    text = (
        f"{stage} {first.count}"
        if first.count == second.count
        else f"{stage} {first.count} -> {second.count}"
    )
    notes = []
    random = sum(place.loop.provenance.label == "rng" for place in second.walk())
    if random:
        notes.append(f"{random} rng")
    unknown = max(first.unknown, second.unknown)
    if unknown:
        notes.append(f"{unknown} with unknown trips")
    passed = [leaf for place in first.walk() for leaf in place.loop.passthrough]
    if passed:
        notes.append(
            f"reference stacks {len(passed)} scanned inputs, {sum(leaf.bytes for leaf in passed):,} bytes"
        )
    return f"{text} ({', '.join(notes)})" if notes else text


class _Comparison:
    def __init__(self, stage: str, slack_bytes: int, carried: frozenset[str], library: str):
        self.stage, self.slack_bytes, self.carried, self.library = stage, slack_bytes, carried, library
        self.notes: list[Finding] = []

    def level(self, first: Sequence[Loop], second: Sequence[Loop], path: str) -> list[Finding]:
        """Compares the loops directly inside one place."""
        pairs, missing, extra = _match(first, second)
        findings = []
        for index, left, right in pairs:
            findings += self._pair(left, right, f"{path}{index}")
        for index, loop in missing.items():
            findings.append(self._alone(loop, f"{path}{index}", "reference"))
        for index, loop in extra.items():
            findings.append(self._alone(loop, f"{path}{index}", "candidate"))
        return findings

    def _pair(self, first: Loop, second: Loop, path: str) -> list[Finding]:
        where = f"{self.stage} loop {path} ({first.provenance.summary})"
        findings = []
        if first.trips != second.trips:
            findings.append(
                Finding(
                    where=where,
                    reference=_trips(first),
                    candidate=_trips(second),
                    cause=_trip_cause(first.trips, second.trips),
                    next_step=f"candidate loop is at {second.provenance.summary}",
                )
            )
        stacked = _stacked_finding(first, second, where, self.carried)
        if stacked is not None:  # remat policies explain scanned inputs that are stacked
            findings.append(stacked)
        findings += self._passthrough(first, second, where)
        if stacked is None:
            findings += self._carries(first, second, where)
        return findings + self.level(first.inner, second.inner, f"{path}.")

    def _carries(self, first: Loop, second: Loop, where: str) -> list[Finding]:
        """Compares all carries; passed-through inputs that explain the difference have separate findings."""
        findings: list[Finding] = []
        gap = abs(first.carry_bytes - second.carry_bytes)
        explained = sum(leaf.bytes for leaf in second.passthrough) - sum(
            leaf.bytes for leaf in first.passthrough
        )
        same = first.carries == second.carries if not self.slack_bytes else True
        if (gap <= self.slack_bytes and same) or (
            explained and second.carry_bytes - first.carry_bytes == explained
        ):
            return []
        fewer = first.carries - second.carries
        found = self.notes if fewer > 0 and (not gap or self._counters(first, second, fewer)) else findings
        found.append(
            Finding(
                where=where,
                reference=f"{first.carries} carries of {first.carry_bytes:,} bytes",
                candidate=f"{second.carries} carries of {second.carry_bytes:,} bytes",
                distance=f"{gap:,} bytes",
                cause="an array carried or captured by one side only, or in another dtype or sharding"
                if gap
                else "the same bytes in another number of arrays",
                next_step=f"candidate loop is at {second.provenance.summary}",
            )
        )
        return findings

    def _counters(self, first: Loop, second: Loop, fewer: int) -> bool:
        """Returns True if the missing carries may be counters of a library's lowered loop, by their bytes."""
        less = first.carry_bytes - second.carry_bytes
        return bool(self.library) and self.stage == "lowered" and less == COUNTER * fewer

    def _passthrough(self, first: Loop, second: Loop, where: str) -> list[Finding]:
        extra = self._unlike(second.passthrough, first.passthrough)
        lost = self._unlike(first.passthrough, second.passthrough)
        if extra and all(self._is_library(leaf.provenance.file) for leaf in extra):
            self.notes += self._stacks_inputs(extra, [], where)
            extra = []
        return self._stacks_inputs(extra, lost, where)

    def _is_library(self, file: str) -> bool:
        return bool(self.library) and file.startswith(self.library)

    def _unlike(self, some: Sequence[Leaf], others: Sequence[Leaf]) -> list[Leaf]:
        return [leaf for leaf in _surplus(some, others) if leaf.shape not in self.carried]

    def _stacks_inputs(self, extra: Sequence[Leaf], lost: Sequence[Leaf], where: str) -> list[Finding]:
        findings = [
            Finding(
                where=where,
                reference="does not stack it",
                candidate=f"stacks a scanned input as an output: {leaf}",
                distance=f"{leaf.bytes:,} bytes",
                cause="the scan body returns an input it only reads, often parameters",
                next_step="return only what the body changes",
            )
            for leaf in extra
        ]
        findings += [
            Finding(
                where=where,
                reference=f"stacks a scanned input as an output: {leaf}",
                candidate="does not stack it",
                distance=f"{leaf.bytes:,} bytes",
                cause="the scan body of the reference returns an input it only reads",
                next_step="mend the reference, or state the difference as wanted",
            )
            for leaf in lost
        ]
        return findings

    def _alone(self, loop: Loop, path: str, side: str) -> Finding:
        inside = f" with {loop.count - 1} loops inside" if loop.inner else ""
        text = f"{_trips(loop)}, {loop.carries} carries of {loop.carry_bytes:,} bytes{inside}"
        texts = {"reference": "no such loop", "candidate": "no such loop", side: text}
        return Finding(
            where=f"{self.stage} loop {path} of the {side} ({loop.provenance.summary})",
            reference=texts["reference"],
            candidate=texts["candidate"],
            cause=_alone_cause(loop, side),
        )


def _match(
    first: Sequence[Loop], second: Sequence[Loop]
) -> tuple[list[tuple[int, Loop, Loop]], dict[int, Loop], dict[int, Loop]]:
    """Returns pairs with the position of the first, and the remaining loops of either side by position."""
    left, right = dict(enumerate(first)), dict(enumerate(second))
    pairs: list[tuple[int, Loop, Loop]] = []
    for key in _KEYS:
        waiting: dict[object, list[int]] = collections.defaultdict(list)
        for index, loop in right.items():
            waiting[key(loop)].append(index)
        for index, loop in list(left.items()):
            if waiting[key(loop)]:
                other = waiting[key(loop)].pop(0)
                pairs.append((index, left.pop(index), right.pop(other)))
    return sorted(pairs, key=lambda pair: pair[0]), left, right


def _surplus(some: Sequence[Leaf], others: Sequence[Leaf]) -> list[Leaf]:
    """Returns the leaves of ``some`` that have no partner of equal shape in ``others``."""
    left = collections.Counter(leaf.shape for leaf in others)
    found = []
    for leaf in some:
        if left[leaf.shape]:
            left[leaf.shape] -= 1
        else:
            found.append(leaf)
    return found


def _stacked_finding(first: Loop, second: Loop, where: str, carried: Collection[str]) -> Finding | None:
    """Compares stacked outputs other than passed-through inputs, which have separate findings."""
    left, right = (
        [leaf for leaf in _surplus(loop.stacked, loop.passthrough) if leaf.shape not in carried]
        for loop in (first, second)
    )
    lost, extra = _surplus(left, right), _surplus(right, left)
    if not lost and not extra:
        return None
    more = sum(leaf.bytes for leaf in extra) - sum(leaf.bytes for leaf in lost)
    if not more and first.trips != second.trips:
        return None
    return Finding(
        where=where,
        reference=f"stacks {_leaves(lost)}" if lost else "stacks nothing more",
        candidate=f"stacks {_leaves(extra)}" if extra else "stacks nothing more",
        distance=f"{more:+,} bytes",
        cause=(
            "residuals kept for the backward pass: remat policy, checkpoint placement or checkpoint name"
            if not first.provenance.backward
            else "gradients or outputs stacked by one side only, or in another dtype"
        ),
        next_step=f"candidate loop is at {second.provenance.summary}",
    )


def _leaves(leaves: Sequence[Leaf]) -> str:
    counts = collections.Counter(leaf.shape for leaf in leaves)
    sizes = {leaf.shape: leaf.bytes for leaf in leaves}
    return ", ".join(
        f"{f'{count} x ' if count > 1 else ''}{shape} ({sizes[shape]:,} bytes)"
        for shape, count in counts.items()
    )


def _trips(loop: Loop) -> str:
    return "trips that depend on data" if loop.trips is None else f"{loop.trips} trips"


def _trip_cause(first: int | None, second: int | None) -> str:
    if first is None or second is None:
        return "a bound that one side computes from data"
    small, large = sorted((first, second))
    if small and large % small == 0:
        return f"an unroll or microbatch factor of {large // small} on one side only"
    return "another number of layers, repeats, chunks or microbatches"


def _alone_cause(loop: Loop, side: str) -> str:
    other = "reference" if side == "candidate" else "candidate"
    if loop.provenance.label == "rng":
        return f"random bits drawn by the {side} only"
    if loop.provenance.label:
        return f"a {loop.provenance.label} that the backend turned into a loop on the {side} only"
    if loop.provenance.rematted:
        return (
            f"a whole scan recomputed: the checkpoint of the {side} is around the scan, not inside its body"
        )
    return f"layers or repeats unrolled by the {other}, or a scan that only the {side} has"
