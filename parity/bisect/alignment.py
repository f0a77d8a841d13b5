"""Which values of two evaluated programs are the same, and the first operations from which they are not."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from parity.bisect.sketch import distance
from parity.bisect.trace import Node, Trace
from parity.values.ladder import FLOOR_FACTOR

__all__ = ["Alignment", "Divergence", "floors"]

SOON = 400
"""Values that are looked through for what the other side begins with."""
GIVEN = frozenset({"argument", "constant"})


def floors(reference: Trace, nudged: Sequence[Trace]) -> list[float]:
    """Returns the noise of each value of the reference: its relative distance from itself when nudged.

    Args:
        reference: the program evaluated.
        nudged: the same from weights and inputs one unit in the last place away, once a draw.
    """
    found = []
    for at, node in enumerate(reference.nodes):
        again = [trace.nodes[at] for trace in nudged if at < len(trace.nodes)]
        off = [distance(node.sketch, other.sketch) for other in again if other.name == node.name]
        finite = [each for each in off if np.isfinite(each)]
        noise = float(np.median(finite)) if finite and node.sketch.epsilon else 0.0
        found.append(max(noise, node.sketch.epsilon))
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence:
    """A place where the two programs part: what goes in agrees, what comes out does not.

    Args:
        reference, candidate: the number of the value on each side; None where a side has nothing there.
        place: how far the reference had come.
        operands: positions of operands that are not the same value.
    """

    reference: int | None
    candidate: int | None
    place: int
    operands: tuple[int, ...] = ()


class Alignment:
    """Two evaluated programs side by side.

    Args:
        reference, candidate: both evaluated, from the same state and batch.
        noise: of each value of the reference, see `floors`.
        words: what tells which code made a value, to pair operations of the two sides.
    """

    def __init__(
        self, reference: Trace, candidate: Trace, noise: Sequence[float], words: Callable[[Node], tuple]
    ):
        self.traces, self._noise, self._words = (reference, candidate), noise, words
        self._matches = self._match()
        self._residuals: list[set[int]] = [set(), set()]

    def same(self, ours: int, theirs: int) -> bool:
        """Whether a value of the reference and one of the candidate are the same up to noise."""
        return self.in_floors(ours, theirs) <= FLOOR_FACTOR

    def in_floors(self, ours: int, theirs: int) -> float:
        """How far two values are apart, in units of the reference's noise."""
        sketches = [trace.nodes[at].sketch for trace, at in zip(self.traces, (ours, theirs), strict=True)]
        off = distance(*sketches)
        return 0.0 if off == 0 else off / self._noise[ours] if self._noise[ours] else float("inf")

    def longer(self, ours: int | None, theirs: int | None) -> int | None:
        """Returns the side, 0 or 1, that does something more where both part, and then what the other does.

        Args:
            ours, theirs: where they part; None where a side has nothing there.

        Returns:
            None where neither side goes on with what the other begins with.
        """
        if ours is None or theirs is None:
            return int(ours is None)
        left, right = self.traces[0].nodes[ours], self.traces[1].nodes[theirs]
        if left.name == right.name:
            return None
        longer = [self._leads_to(0, ours, right), self._leads_to(1, theirs, left)]
        return longer.index(True) if sum(longer) == 1 else None

    def backward(self, divergence: Divergence) -> bool:
        """Whether a place where the programs part belongs to the backward pass."""
        ends = zip(self.traces, (divergence.reference, divergence.candidate), strict=True)
        return all(trace.nodes[at].around.backward for trace, at in ends if at is not None)

    def stopped(self) -> list[Divergence]:
        """Returns where one side stops a gradient and the other does not, in the order of the reference."""
        cuts = [
            [at for at, node in enumerate(trace.nodes) if node.name == "stop_gradient"]
            for trace in self.traces
        ]
        if len(cuts[0]) == len(cuts[1]):  # what is stopped may differ by value alone, as in a softmax
            return []
        side = int(len(cuts[1]) > len(cuts[0]))

        def ends(own: int, other: int) -> tuple[int, int]:
            return (own, other) if side == 0 else (other, own)

        alone = [at for at in cuts[side] if not any(self.same(*ends(at, other)) for other in cuts[1 - side])]
        pairs = [ends(at, self._matches[side][at]) for at in alone if self._matches[side][at] >= 0]
        found = [Divergence(reference=left, candidate=right, place=left) for left, right in pairs]
        return sorted(found, key=lambda each: each.place)

    def _leads_to(self, side: int, at: int, other: Node) -> bool:
        """Whether what comes of a value soon is made as another side's value is."""
        nodes, reached, words = self.traces[side].nodes, {at}, self._words(other)
        for number in range(at + 1, min(at + SOON, len(nodes))):
            if reached.isdisjoint(nodes[number].inputs):
                continue
            reached.add(number)
            if nodes[number].name == other.name and self._words(nodes[number]) == words:
                return True
        return False

    def _match(self) -> tuple[list[int], list[int]]:
        """Returns for each value of either side its nearest partner in execution order, or -1."""
        groups: dict[tuple, list[int]] = collections.defaultdict(list)
        for at, node in enumerate(self.traces[0].nodes):
            groups[node.sketch.kind].append(at)
        stacked = {
            kind: np.stack([self.traces[0].nodes[at].sketch.projected for at in members])
            for kind, members in groups.items()
        }
        ours, theirs = [-1] * len(self.traces[0].nodes), [-1] * len(self.traces[1].nodes)
        here = 0
        for at, node in enumerate(self.traces[1].nodes):
            members = groups.get(node.sketch.kind, [])
            found = self._near(node, members, stacked.get(node.sketch.kind))
            if node.sketch.plain and node.name not in GIVEN:
                found = [member for member in found if self._alike_made(member, node)]
            for member in found:
                if ours[member] < 0 or node.name == self.traces[0].nodes[member].name:
                    ours[member] = at
            if found:
                theirs[at] = min(found, key=lambda member: (abs(member - here), member))
                if not node.literal:
                    here = theirs[at]
        return ours, theirs

    def _alike_made(self, ours: int, right: Node) -> bool:
        """Whether two values are made by the same operation of the same values."""
        left = self.traces[0].nodes[ours]
        if left.name != right.name or len(left.inputs) != len(right.inputs):
            return False
        return all(any(self.same(i, j) for i in left.inputs) for j in right.inputs)

    def _near(self, node: Node, members: list[int], stacked: np.ndarray | None) -> list[int]:
        if stacked is None:
            return []
        gaps = np.sqrt(np.mean(np.abs(stacked - node.sketch.projected) ** 2, axis=1))
        limits = np.array(
            [FLOOR_FACTOR * self._noise[at] * self.traces[0].nodes[at].sketch.norm for at in members]
        )
        return [members[index] for index in np.flatnonzero(gaps <= limits)]

    def divergences(self, failing: Iterable[tuple[int, int]]) -> list[Divergence]:
        """Returns where the programs part on the way to results that differ, the first one first.

        A difference counts only if it reaches such a result through values that all differ: what comes
        together again on the way is another way to compute the same.

        Args:
            failing: value numbers of results that differ, of both sides.
        """
        ends = list(failing)
        ours, theirs = (self._front(side, {pair[side] for pair in ends}) for side in (0, 1))
        known = [pair for pair in dict.fromkeys(ends) if pair[0] in ours and pair[1] in theirs]
        pairs = self._pair(ours, theirs, known)
        return sorted(pairs, key=lambda pair: (pair.place, None in (pair.reference, pair.candidate)))

    def _front(self, side: int, ends: set) -> list[int]:
        """Walks back from some results through values that the other side lacks, to where that begins."""
        nodes, match = self.traces[side].nodes, self._matches[side]
        waiting, seen, front = list(ends), set(ends), []
        fed: dict[int, list[int]] = collections.defaultdict(list)
        while waiting:
            at = waiting.pop()
            lacking = [i for i in nodes[at].inputs if match[i] < 0 and not nodes[i].literal]
            if not lacking:
                front.append(at)
            for i in lacking:
                fed[i].append(at)
            fresh = [i for i in lacking if i not in seen]
            seen.update(fresh)
            waiting += fresh
        self._residuals[side] = self._kept_for_later(side, seen - ends, fed)
        return sorted(front)

    def _kept_for_later(self, side: int, values: set[int], fed: Mapping[int, list[int]]) -> set[int]:
        """Returns the values of the forward pass that only the backward pass asks for.

        Where a side has no such backward pass it has none of them either: that is what follows, not the cause.
        """
        nodes, kept = self.traces[side].nodes, set()
        for at in sorted(values, reverse=True):
            later = all(user in kept or nodes[user].around.backward for user in fed[at])
            if later and not nodes[at].around.backward:
                kept.add(at)
        return kept

    def _place(self, side: int, at: int) -> int:
        """How far the reference has come when a value's inputs are there."""
        nodes = self.traces[side].nodes
        told = self._matches[side][at] < 0 and not nodes[at].literal and at not in self._residuals[side]
        if (
            not told
        ):  # a result that the other side has elsewhere, such as zeros; or what follows from another
            return len(self.traces[0].nodes)
        inputs = [i for i in nodes[at].inputs if not nodes[i].literal]
        reached = inputs if side == 0 else [self._matches[1][i] for i in inputs]
        return max(reached, default=0)

    def _pair(self, ours: list[int], theirs: list[int], known: Sequence[tuple]) -> list[Divergence]:
        """Pairs operations that stand for each other: results that do, then the likeliest."""
        rest, pairs = [at for at in ours if at not in {left for left, _ in known}], []
        for left, right in known:
            pairs.append(self._descend(left, right, min(self._place(0, left), self._place(1, right))))
        for at in [at for at in theirs if at not in {right for _, right in known}]:
            best = max(rest, key=lambda other, at=at: self._likeness(other, at), default=None)
            if best is not None and self._likeness(best, at) > 0:
                rest.remove(best)
                pairs.append(self._descend(best, at, min(self._place(0, best), self._place(1, at))))
            else:
                pairs.append(Divergence(reference=None, candidate=at, place=self._place(1, at)))
        return pairs + [Divergence(reference=at, candidate=None, place=self._place(0, at)) for at in rest]

    def _likeness(self, ours: int, theirs: int) -> float:
        """How likely two operations stand for each other; 0 if they do not."""
        left, right = self.traces[0].nodes[ours], self.traces[1].nodes[theirs]
        words = zip(self._words(left), self._words(right), strict=False)
        shared = sum(any(self.same(i, j) for j in right.inputs) for i in left.inputs)
        alike = sum(one == other for one, other in words)
        turn = [at for _, at in left.around.turns] == [at for _, at in right.around.turns]
        if left.around.backward != right.around.backward or not (shared or alike):
            return 0.0
        return 4 * (left.name == right.name) + 2 * shared + alike + turn - abs(ours - theirs) * 1e-6

    def _unlike(self, ours: int, theirs: int) -> list[int]:
        inputs = [self.traces[side].nodes[at].inputs for side, at in enumerate((ours, theirs))]
        return [at for at, pair in enumerate(zip(*inputs, strict=False)) if not self.same(*pair)]

    def _descend(self, ours: int, theirs: int, place: int) -> Divergence:
        """Follows operands that are not the same value, though both values are on both sides, to their origin."""
        start = found = self._between(ours, theirs, place)
        while True:
            left, right = self.traces[0].nodes[ours], self.traces[1].nodes[theirs]
            if left.name != right.name or len(left.inputs) != len(right.inputs) or not found.operands:
                return found
            ours, theirs = left.inputs[found.operands[0]], right.inputs[found.operands[0]]
            makers = {self.traces[0].nodes[ours].name, self.traces[1].nodes[theirs].name}
            if makers & GIVEN:
                return start if "argument" in makers else found
            found = self._between(ours, theirs, place)

    def _between(self, ours: int, theirs: int, place: int) -> Divergence:
        operands = tuple(self._unlike(ours, theirs))
        return Divergence(reference=ours, candidate=theirs, place=place, operands=operands)
