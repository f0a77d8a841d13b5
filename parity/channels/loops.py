"""The channel ``loops``: while loops before and after optimisation, and the arrays that they pass through."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import flax

from parity.cases.accepted import budgets_for
from parity.channels.channel import Aspect, channel
from parity.channels.recomputation import ACCEPT, compare_recomputed
from parity.channels.report_rows import loop_table
from parity.channels.results import budgeted, compared, pair_up, span, times
from parity.compare.evidence import Evidence
from parity.ir.hlo.hlo import Shape
from parity.ir.hlo.model import Loop, LoopTree
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.jax_internals import scan_split
from parity.ir.jaxprs import equations, opened, origin
from parity.ir.location import equation_source
from parity.ir.stablehlo.lowered import lowered_loops
from parity.verdicts import SIDES, ChannelResult, Finding, Row, Verdict, listed, one_sided

FLAX = str(Path(flax.__file__).parent)
LISTED, CALLERS = 4, 2
STACKED = "gradients or outputs stacked by one side only, or in another dtype"
CARRIED = "an array carried or captured by one side only, or in another dtype or sharding"
DRAWN = "draws, or draws in another shape or range"
SMALL = 1_024
"""Bytes by which arrays may differ: stacked ones in exchange for others, or fewer ones without a gradient; as many
carries of the same types; fewer carries, and those of optimised loops whose lowered loops are equal.

Unchanged arrays, such as a mask, that one side makes before a loop and the other one in it, may also have as many bytes
as those that the loop changes: no iteration adds to them."""


Loops = dict[str, LoopTree]
"""The loop trees of one program by stage: ``lowered``, ``optimised``; a stage that was not read is absent."""


@channel(column="loop", aspect=Aspect.STRUCTURE)
def loops(evidence: Evidence) -> ChannelResult:
    """Compares while loops with trip counts and carries, as lowered and as optimised, and recomputation.

    A proof leaves only the carries of the lowered loops open.
    """
    sides = evidence.read_sides if evidence.proof_covers_compiled else evidence.compiling()
    found = {side: lowered_loops(side.operations) for side in set(sides)}
    left, right = (Loops(lowered=found[side]) for side in sides)
    if not evidence.proof_covers_compiled:
        for trees, side in zip((left, right), sides, strict=True):
            trees["optimised"] = optimised_loops(side.optimised)
    budgets = budgets_for("loops", evidence.case.accept.budgets)
    slack = budgets["carry_bytes"].slack if "carry_bytes" in budgets else 0
    arrays = [array for side in evidence.unpaired for array in side]
    slack = max(slack, 2 * sum(array.size for array in arrays))
    carried = {words for array in arrays for words in array.compiled}
    result = compare_loops(left, right, slack, carried=carried)
    if "optimised" in left:
        counts = (left["optimised"].count, right["optimised"].count)
        result = budgeted(result, budgets, {"count": counts})
        totals = _totals(left["optimised"], right["optimised"])
        result = dataclasses.replace(result, measures={**result.measures, **totals})
    recomputed = None if evidence.proof_covers_compiled else compare_recomputed(evidence)
    forwarded = compare_forwarded(evidence, {words for array in arrays for words in array.traced})
    if first := (*filter(None, [recomputed]), *forwarded):  # loops that are only recomputed follow from it
        result = dataclasses.replace(result, verdict=Verdict.FAILED, findings=(*first, *result.findings))
    return dataclasses.replace(result, tables=_tables(left, right, result))


def _totals(reference: LoopTree, candidate: LoopTree) -> dict[str, int]:
    """Returns the quantities that a gate may budget, of all loops; the tables of large trees are cut."""
    totals = {}
    for side, tree in zip(SIDES, (reference, candidate), strict=True):
        totals[f"{side}_count"] = tree.count
        totals[f"{side}_carry_bytes"] = sum(loop.carry_bytes for *_, loop in tree.walk())
    return totals


def _tables(left: Loops, right: Loops, result: ChannelResult) -> dict[str, list[Row]]:
    """Returns the trees of loops; empty for equal programs that were not compiled, to keep records small."""
    if "optimised" not in left and result.verdict is Verdict.EQUAL:
        return {}
    return {"loops": [row for stage in left for row in loop_table(left[stage], right[stage])]}


# From the surest match to the weakest; a pair that only a weak key joins gives a finding as text.
_KEYS: tuple[Callable[[tuple[int, Loop]], tuple], ...] = (
    lambda at: (at[1].signature, at[1].provenance.tags),
    lambda at: (at[1].signature,),
    lambda at: (at[1].trips, at[1].provenance.tags, at[1].count),
    lambda at: (at[1].trips, at[1].provenance.tags),
    lambda at: (at[1].provenance.tags, at[1].count, at[1].carries),
    lambda at: (at[1].provenance.tags,),
)


def compare_loops(
    reference: Loops,
    candidate: Loops,
    slack_bytes: int = 0,
    *,
    carried: Collection[str] = (),
) -> ChannelResult:
    """Compares the loops of two programs, lowered and optimised.

    Loops match by structure and name stack, never by source file or by the order of carries.

    Args:
        slack_bytes: number of carry bytes by which two matched loops may differ (a counter one side carries).
        carried: arrays such as ``u32[3]`` that only one side may carry through its loops.

    Returns:
        The ``loops`` channel: equal, failed with findings, or vacuous if a side has no operation at all. It is a note
        if the candidate carries fewer small arrays, or the same bytes in fewer arrays.
    """
    parts: list[str] = []
    findings: list[Finding] = []
    notes: list[Finding] = []
    for stage in reference:
        trees = reference[stage], candidate[stage]
        for side, tree in zip(SIDES, trees, strict=True):
            if not tree.computes:
                text = f"the {stage} program of the {side} has no operations"
                return ChannelResult(verdict=Verdict.VACUOUS, detail=text)
        parts.append(f"{stage} {span(*(str(tree.count) for tree in trees))}")
        equal_before = stage == "optimised" and not findings
        trains = any(loop.provenance.backward for tree in trees for *_, loop in tree.walk())
        work = _Comparison(stage, slack_bytes, frozenset(carried), equal_before, trains)
        for finding, is_note in work.level(trees[0].loops, trees[1].loops, ""):
            (notes if is_note else findings).append(finding)
    return compared(", ".join(parts), findings, notes=tuple(notes))


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """The comparison of one stage; see `compare_loops`. It yields findings, each with True if it is only a note.

    ``equal_before`` is True if the loops are equal before optimisation, ``trains`` if one belongs to a backward pass.
    """

    stage: str
    slack_bytes: int
    carried: frozenset[str]
    equal_before: bool
    trains: bool

    def level(
        self, first: Sequence[Loop], second: Sequence[Loop], path: str
    ) -> Iterator[tuple[Finding, bool]]:
        """Compares the loops directly inside one place."""
        pairs, missing, extra = pair_up(enumerate(first), enumerate(second), _KEYS)
        for (index, left), (_, right) in sorted(pairs, key=lambda pair: pair[0][0]):
            yield from self._pair(left, right, f"{path}{index}")
        for side, alone in zip(SIDES, (missing, extra), strict=True):
            for index, loop in alone:
                # A backend makes loops of operations such as a scatter, for which the other program has others.
                if loop.provenance.label in ("", "rng"):
                    yield self._alone(loop, f"{path}{index}", side), False

    def _pair(self, first: Loop, second: Loop, path: str) -> Iterator[tuple[Finding, bool]]:
        where = f"{self.stage} loop {path} ({first.provenance.summary})"
        at = f"candidate loop is at {second.provenance.summary}"
        if first.trips != second.trips:
            cause = _trip_cause(first.trips, second.trips)
            texts = dict(zip(SIDES, map(_trips, (first, second)), strict=True))
            yield Finding(where=where, **texts, cause=cause, next_step=at), False
        lost, extra = self._stacked(first, second)
        if lost or extra:
            kept = self.trains and not first.provenance.backward
            less, more = sorted((_bytes(lost), _bytes(extra)))
            # Carries of equal bytes may be written in another way, as by a scatter; the gradients of rows, too.
            gap = abs(second.carry_bytes - first.carry_bytes)
            written = gap <= SMALL * first.provenance.backward and less <= SMALL
            small = written or (less and more <= SMALL) or (not self.trains and not extra and more <= SMALL)
            # A scalar of each turn is no activation: one side may keep it, the other one make it again.
            scalars = all(_shape(leaf).sizes in ((), (first.trips,)) for leaf in (*lost, *extra))
            small = small or (kept and scalars and more <= SMALL) or _are_parts(lost, extra)
            yield _stacked_finding(lost, extra, kept, where, at), bool(small)
        if _bytes(lost) == _bytes(extra):  # stacked arrays are carries, too
            yield from self._carries(first, second, where, at)
        yield from self.level(first.inner, second.inner, f"{path}.")

    def _carries(self, first: Loop, second: Loop, where: str, at: str) -> Iterator[tuple[Finding, bool]]:
        more = second.carry_bytes - first.carry_bytes
        gap, fewer = abs(more), first.carries - second.carries
        if gap <= self.slack_bytes and (self.slack_bytes or not fewer):
            return
        changed = min(loop.carry_bytes - loop.kept_bytes for loop in (first, second))
        # Fewer bytes in more arrays are no mask made before a loop.
        larger = changed if fewer * more < 0 else 0
        kept = more == second.kept_bytes - first.kept_bytes and gap <= max(SMALL, larger)
        # Such as the sums of each row of a batch, or of all rows.
        typed = first.elements and first.elements == second.elements
        small = gap <= SMALL and (typed or self.equal_before or (fewer > 0 and more < 0))
        finding = Finding(
            where=where,
            reference=f"{first.carries} carries of {first.carry_bytes:,} bytes",
            candidate=f"{second.carries} carries of {second.carry_bytes:,} bytes",
            distance=f"{gap:,} bytes",
            cause=CARRIED if gap else "the same bytes in another number of arrays",
            next_step=at,
        )
        yield finding, bool(not gap or kept or small)

    def _stacked(self, first: Loop, second: Loop) -> tuple[list[Shape], list[Shape]]:
        lost = self._surplus(first.stacked, second.stacked)
        extra = self._surplus(second.stacked, first.stacked)
        regrouped = _bytes(lost) == _bytes(extra) and first.trips != second.trips
        return ([], []) if regrouped else (lost, extra)

    def _surplus(self, some: Sequence[Shape], others: Sequence[Shape]) -> list[Shape]:
        """Returns the leaves of ``some`` that have no partner of equal shape in ``others`` and may not be one-sided.

        Axes of size one do not count.
        """
        left = collections.Counter(map(_shape, others))
        found = []
        for leaf in some:
            if left[_shape(leaf)]:
                left[_shape(leaf)] -= 1
            elif str(leaf) not in self.carried:
                found.append(leaf)
        return found

    def _alone(self, loop: Loop, path: str, side: str) -> Finding:
        inside = f" with {loop.count - 1} loops inside" if loop.inner else ""
        text = f"{_trips(loop)}, {loop.carries} carries of {loop.carry_bytes:,} bytes{inside}"
        callers = " < ".join(map(str, loop.provenance.own[1 : 1 + CALLERS]))  # one of them may repeat it
        called = f", called at {callers}" if callers else ""
        return Finding(
            where=f"{self.stage} loop {path} of the {side} ({loop.provenance.summary}{called})",
            **one_sided(side, text, "no such loop"),
            cause=_alone_cause(loop, side),
            next_step=ACCEPT,
        )


def _stacked_finding(
    lost: Sequence[Shape], extra: Sequence[Shape], kept: bool, where: str, at: str
) -> Finding:
    texts = [f"stacks {_leaves(leaves) or 'nothing more'}" for leaves in (lost, extra)]
    return Finding(
        where=where,
        reference=texts[0],
        candidate=texts[1],
        distance=f"{_bytes(extra) - _bytes(lost):+,} bytes",
        cause="residuals kept for the backward pass: remat policy, checkpoint placement or name, or a mask of one side"
        if kept
        else STACKED,
        next_step=at,
    )


def _shape(leaf: Shape) -> Shape:
    return Shape(leaf.element, tuple(size for size in leaf.sizes if size != 1))


def _bytes(leaves: Sequence[Shape]) -> int:
    return sum(leaf.bytes for leaf in leaves)


def _are_parts(some: Sequence[Shape], others: Sequence[Shape]) -> bool:
    """Returns True if arrays hold the same rows along an axis, as a fused weight and its parts do.

    Equal parts may be stacked along a further axis.
    """

    def rows(leaves: Sequence[Shape], axis: int) -> collections.Counter[Shape]:
        found: collections.Counter[Shape] = collections.Counter()
        for leaf in leaves:
            found[_without(leaf, max(0, len(leaf.sizes) - axis))] += leaf.sizes[-axis:][0]
        return found

    left, right = (
        collections.Counter(Shape(leaf.element, leaf.sizes) for leaf in leaves) for leaves in (some, others)
    )
    _drop_stacks(left, right)
    _drop_stacks(right, left)
    some, others = tuple(left.elements()), tuple(right.elements())
    axes = range(1, 1 + max((len(leaf.sizes) for leaf in (*some, *others)), default=1))
    return any(rows(some, axis) == rows(others, axis) for axis in axes)


def _drop_stacks(leaves: collections.Counter[Shape], parts: collections.Counter[Shape]) -> None:
    """Removes the arrays that stack equal ones of the other side, and these."""
    for leaf in list(leaves.elements()):
        axes = range(1, len(leaf.sizes))  # the first one counts the iterations
        stacked = (at for at in axes if parts[_without(leaf, at)] >= leaf.sizes[at] > 1)
        if (axis := next(stacked, None)) is not None:
            leaves[leaf] -= 1
            parts[_without(leaf, axis)] -= leaf.sizes[axis]


def _without(leaf: Shape, axis: int) -> Shape:
    return Shape(leaf.element, leaf.sizes[:axis] + leaf.sizes[axis + 1 :])


def _leaves(leaves: Sequence[Shape]) -> str:
    counts = sorted(collections.Counter(leaves).items(), key=lambda item: -item[0].bytes * item[1])
    return listed([f"{times(count)}{leaf} ({leaf.bytes:,} bytes)" for leaf, count in counts], LISTED)


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
    if loop.provenance.label == "rng":
        return f"random bits that only the {side} {DRAWN}"
    if loop.provenance.rematted:
        return (
            f"a whole scan recomputed: the checkpoint of the {side} is around the scan, not inside its body"
        )
    other = SIDES[side == SIDES[0]]
    return f"layers or repeats unrolled by the {other}, or a scan that only the {side} has"


def compare_forwarded(evidence: Evidence, carried: Collection[str]) -> list[Finding]:
    """Finds traced scans of one side that return scanned inputs although the other side's do not.

    A body that returns its read-only parameters stacks them again: a second copy of all weights wherever the result is
    kept.

    Args:
        carried: arrays such as ``key<fry>[3]`` that only one side may carry.
    """
    scans = [list(_forwarding(side.traced.jaxpr, carried)) for side in evidence.sides]
    left, right = (collections.Counter(array for _, kept in side for array in kept) for side in scans)
    if left == right:
        return []
    more = int(bool(right - left))
    return [
        Finding(
            where=f"traced scan at {equation_source(scan)}",
            **one_sided(
                SIDES[more],
                f"returns {len(kept)} scanned inputs unchanged: {listed(kept, LISTED)}",
                "returns none of its scanned inputs",
            ),
            cause="the scan body returns its parameters",
            next_step="return only what the body changes",
        )
        for scan, kept in scans[more]
    ]


def _forwarding(jaxpr: Any, carried: Collection[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yields the scans that return scanned inputs, with these; those of Flax return all, and JAX drops the copies."""
    for equation in equations(jaxpr):
        if equation.primitive.name != "scan" or equation_source(equation).frame.file.startswith(FLAX):
            continue
        body, (constants, carries) = opened(equation.params["jaxpr"]), scan_split(equation)
        given = set(body.invars[constants + carries :])
        pairs = zip(body.outvars[carries:], equation.outvars[carries:], strict=True)
        kept = [
            f"{out.aval.dtype}{list(out.aval.shape)}" for made, out in pairs if origin(body, made) in given
        ]
        if left := [array for array in kept if array not in carried]:
            yield equation, left
