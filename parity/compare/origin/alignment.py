"""Matches the equal values of two evaluated programs; finds the operations that make and use them."""

import collections
import functools
import itertools
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from parity.compare.origin.sketch import Sketch, distance
from parity.compare.origin.trace import Node, Trace, functions_around, site
from parity.ir.functions import Frame, function_of
from parity.values.ladder import FLOOR_FACTOR

T = TypeVar("T")

GIVEN = frozenset({"argument", "constant"})
TELLING = 255
"""Norm above which single numbers are hardly equal by chance."""
AMPLIFIED = 10
"""Factor by which an operation may enlarge a difference of its operands, in the norm of arrays."""
CHANCE = 0.1
"""Relative distance above which values may be equal by chance: there, noise counts only `WIDE` times."""
WIDE = 2
SHORT = 60
"""Maximum number of values that a search for the origin of a value visits."""
MOVES = frozenset(
    {"branch", "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "copy", "tile"}
)
"""Operations that move a value without computing; its maker is one of their inputs."""


RECAST = MOVES | {"convert_element_type", "reduce_precision"}
"""Operations that a value survives up to rounding."""
COMMUTES = frozenset({"add", "add_any", "and", "eq", "max", "min", "mul", "ne", "or", "xor"})
"""Operations whose operands may be in either order."""
ITERATIONS = frozenset({"transpose", "turn"})
"""Operations that only reorder entries, or pass them to the iterations of a loop."""
PARTS = ITERATIONS | {"slice", "split"}
"""Operations that take entries of one value in their order."""


def ordered(side: int, at: T, other: T) -> tuple[T, T]:
    """Returns what belongs to a side and to the other one, the reference's first."""
    return (at, other) if side == 0 else (other, at)


def reached(start: Iterable[int], further: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """Yields values, then those that they lead to, and so on, each once."""
    waiting = list(dict.fromkeys(start))
    seen = set(waiting)
    for at in waiting:  # grows
        yield at
        fresh = [each for each in dict.fromkeys(further(at)) if each not in seen]
        seen.update(fresh)
        waiting += fresh


def before_moves(nodes: Sequence[Node], at: int) -> int:
    """Returns the number of a value before casts and moves."""
    while not nodes[at].label and nodes[at].name in RECAST | ITERATIONS and nodes[at].inputs:
        at = nodes[at].inputs[0]
    return at


def floors(reference: Trace, nudged: Sequence[Trace]) -> list[float]:
    """Returns the noise of each value of the reference: its relative distance from its nudged evaluations.

    A value that is only cast or moved has at least the noise of its operands.

    Args:
        nudged: evaluations from weights and inputs that differ by one unit in the last place, one per draw.
    """
    found = []
    for at, node in enumerate(reference.nodes):
        again = [trace.nodes[at] for trace in nudged if at < len(trace.nodes)]
        off = [distance(node.sketch, other.sketch) for other in again if other.name == node.name]
        finite = [each for each in off if np.isfinite(each)]
        noise = statistics.median(finite) if finite and node.sketch.epsilon else 0.0
        inherited = [found[i] for i in node.inputs] if node.name in RECAST and node.sketch.epsilon else []
        found.append(max(noise, node.sketch.epsilon, *inherited))
    return found


class Alignment:
    """Two evaluated programs, and the matches between their values.

    Args:
        reference, candidate: both evaluated, from the same state and batch.
        noise: noise of each value of the reference, see `floors`.

    Attributes:
        matches: for each value of either side its nearest partner in execution order, or -1.
    """

    def __init__(self, reference: Trace, candidate: Trace, noise: Sequence[float]):
        self.traces, self._noise = (reference, candidate), noise
        self.matches = self._match()

    def pair(self, first: int, second: int) -> tuple[Node, Node]:
        """Returns a value of the reference and one of the candidate by their numbers."""
        return self.traces[0].nodes[first], self.traces[1].nodes[second]

    def same(self, first: int, second: int) -> bool:
        """True if a value of the reference and one of the candidate are equal up to noise."""
        return self.in_floors(first, second) <= FLOOR_FACTOR

    def in_floors(self, first: int, second: int) -> float:
        """Returns the distance of two values in units of the reference's noise; a value is near any of its parts."""
        left, right = self.pair(first, second)
        pairs = [(left.sketch, right.sketch)]
        pairs += [(part, right.sketch) for part in itertools.chain(*left.parts)]
        pairs += [(left.sketch, part) for part in itertools.chain(*right.parts)]
        off = min(distance(*pair) for pair in pairs)
        return 0.0 if off == 0 else off / self._noise[first] if self._noise[first] else float("inf")

    def follows(self, first: int, second: int) -> bool:
        """True if operands that are equal up to noise differ by as much as the results of two operations."""
        if self.unlike(first, second):
            return False

        def off(one: int, other: int) -> float:
            return distance(*(node.sketch for node in self.pair(one, other)))

        left, right = self.pair(first, second)
        given = (off(left.inputs[i], right.inputs[j]) for i, j in self._operands(left, right))
        return 0 < off(first, second) <= AMPLIFIED * max(filter(np.isfinite, given), default=0.0)

    def equals(self, side: int, at: int) -> list[int]:
        """Returns the values of the other side that are equal to a value up to noise."""
        kind = self.traces[side].nodes[at].sketch.kind
        return [
            other
            for other, node in enumerate(self.traces[1 - side].nodes)
            if node.sketch.kind == kind and self.same(*ordered(side, at, other))
        ]

    def shares(self, first: int, second: int) -> bool:
        """True if two operations share an operand that is hardly equal by chance."""
        for i, j in itertools.product(*(node.inputs for node in self.pair(first, second))):
            sketch = self.traces[0].nodes[i].sketch
            if (not sketch.plain or sketch.norm > TELLING) and self.same(i, j):
                return True
        return False

    def like(self, side: int, at: int) -> list[int]:
        """Returns the same operations of the other side, in the same pass, on results of the same size."""
        node = self.traces[side].nodes[at]
        return [
            other
            for other, each in enumerate(self.traces[1 - side].nodes)
            if each.name == node.name
            and each.sketch.kind[0] == node.sketch.kind[0]
            and each.around.backward == node.around.backward
        ]

    def corresponds(self, side: int, at: int) -> bool:
        """True if the other side does an operation with an equal operand, and another result that it has alone, too."""
        alone = [other for other in self.like(side, at) if self.matches[1 - side][other] < 0]
        return any(self.shares(*ordered(side, at, other)) for other in alone)

    def more(self, first: int, second: int) -> int | None:
        """Returns the side, 0 or 1, whose value is computed from the other's, which it also has; None if neither is."""
        for side, at, other in ((0, first, second), (1, second, first)):
            made, less = self.traces[side].nodes[at], self.traces[1 - side].nodes[other]
            if less.literal or less.sketch.plain or self.matches[1 - side][other] < 0:
                continue
            matching = made.name == less.name  # they correspond, unless one is the other's operand
            if self.shares(first, second) if matching else self.matches[side][at] >= 0:
                continue
            nodes = self.traces[side].nodes
            behind = reached(made.inputs, lambda i, nodes=nodes: nodes[i].inputs)
            below = made.inputs if matching else itertools.islice(behind, SHORT)
            if any(self.same(*ordered(side, i, other)) for i in below):
                return side
        return None

    def unmoved(self, side: int, at: int) -> int:
        """Returns a value, or the one that it moves or casts if the other side lacks it."""
        nodes = self.traces[side].nodes
        while self.matches[side][at] < 0 and nodes[at].name in RECAST | ITERATIONS and nodes[at].inputs:
            at = nodes[at].inputs[0]
        return at

    def deciding(self, side: int, at: int) -> Sequence[int]:
        """Returns the operands of an operation; the chosen one if it chooses as a whole, as one of the other side."""
        node, (own, others) = self.traces[side].nodes[at], ordered(side, *self._choices)
        choice = own.get(at)
        return (node.inputs[1 + choice[0]],) if choice and choice in others.values() else node.inputs

    @functools.cached_property
    def _choices(self) -> list[dict[int, tuple[int, int]]]:
        """The operations of each side that choose one operand as a whole, with its position and size."""
        return [
            {
                at: (round(condition.norm / condition.kind[0] ** 0.5), node.sketch.kind[0])
                for at, node in enumerate(trace.nodes)
                if node.name == "select_n" and (condition := trace.nodes[node.inputs[0]].sketch).plain
            }
            for trace in self.traces
        ]

    @functools.cached_property
    def frames(self) -> list[set[Frame]]:
        """The user's lines on the call stacks of each side."""
        sources = (set(map(site, trace.nodes)) for trace in self.traces)
        return [{frame for source in each for frame in source.own} for each in sources]

    @functools.cached_property
    def common(self) -> frozenset[Hashable]:
        """The functions with equal text on both sides; they cannot cause a difference."""
        left, right = (set(map(function_of, frames)) for frames in self.frames)
        return frozenset(left & right)

    def innermost(self, frames: Iterable[Frame]) -> Frame | None:
        """Returns the first of some lines, innermost first, in a function that is not common; None if there is none."""
        return next((frame for frame in frames if function_of(frame) not in self.common), None)

    def users(self, side: int, at: int) -> Sequence[int]:
        """Returns the operations that take a value."""
        return self._users[side].get(at, ())

    @functools.cached_property
    def _users(self) -> list[Mapping[int, list[int]]]:
        found = []
        for trace in self.traces:
            users: dict[int, list[int]] = collections.defaultdict(list)
            for at, node in enumerate(trace.nodes):
                for value in dict.fromkeys(node.inputs):
                    users[value].append(at)
            found.append(users)
        return found

    def unlike(self, first: int, second: int) -> tuple[tuple[int, int], ...]:
        """Returns the positions of both sides at which two operations take values that are not the same."""
        left, right = self.pair(first, second)
        pairs = self._operands(left, right)
        return tuple((i, j) for i, j in pairs if not self.same(left.inputs[i], right.inputs[j]))

    def _operands(self, left: Node, right: Node) -> list[tuple[int, int]]:
        """Returns the positions of operands that correspond.

        Equal ones may be at other places, if they are constants, or if one operation makes the others, too.
        """
        places = [(at, at) for at in range(min(len(left.inputs), len(right.inputs)))]
        if len(places) < 2 or left.name != right.name or left.name not in COMMUTES:
            return places

        def is_moved(i: int, j: int) -> bool:
            equal, others = (left.inputs[i], right.inputs[j]), (left.inputs[1 - i], right.inputs[1 - j])
            traced = zip(self.traces, others, strict=True)
            names = {trace.nodes[before_moves(trace.nodes, at)].name for trace, at in traced}
            constant = all(node.literal for node in self.pair(*equal))
            return self.same(*equal) and (constant or len(names) == 1)

        crossed = [(0, 1), (1, 0)]
        kept = any(self.same(left.inputs[i], right.inputs[j]) for i, j in places)
        return crossed if not kept and any(itertools.starmap(is_moved, crossed)) else places

    def instead(self, side: int, at: int) -> int | None:
        """Returns an operation of the other side that uses an operand of this one and has no counterpart here.

        Both are in the forward pass, the backward pass or the update after it.
        It is the first one whose call stack shares most functions with that of this one.
        """
        nodes, others = self.traces[side].nodes, self.traces[1 - side].nodes
        around, found = set(functions_around(nodes[at])), []
        for value in nodes[at].inputs:
            if nodes[value].literal or nodes[value].sketch.plain:
                continue
            names = {nodes[user].name for user in self.users(side, value)} | RECAST | {"stop_gradient"}
            for user in (user for each in self.equals(side, value) for user in self.users(1 - side, each)):
                if others[user].name not in names and self._stage(1 - side, user) == self._stage(side, at):
                    found.append(user)
        return max(found, key=lambda each: len(around & set(functions_around(others[each]))), default=None)

    def _stage(self, side: int, at: int) -> tuple[bool, bool]:
        """Returns whether a value is of the backward pass, and whether it comes after all of it, as an update does."""
        backward = self.traces[side].nodes[at].around.backward
        return backward, at > self._last_backward[side] >= 0

    @functools.cached_property
    def _last_backward(self) -> list[int]:
        return [
            max((at for at, node in enumerate(trace.nodes) if node.around.backward), default=-1)
            for trace in self.traces
        ]

    def _match(self) -> tuple[list[int], list[int]]:
        """Returns for each value of either side its nearest partner in execution order, or -1."""
        left, right = (trace.nodes for trace in self.traces)
        groups = _grouped([node.sketch for node in left], self._noise)
        entries = _grouped([node.sketch.entries or node.sketch for node in left], self._noise)
        names, shapes = np.array([node.name for node in left]), [node.sketch.shape for node in left]
        first, second = np.full(len(left), -1), np.full(len(right), -1)
        here = 0
        for at, node in enumerate(right):
            found = _near(groups, node.sketch)
            if not found.size and node.sketch.entries and not node.sketch.plain:
                near = _near(entries, node.sketch.entries)
                if node.sketch.shape not in {shapes[each] for each in near}:  # else it is in another order
                    found = near
            if node.sketch.plain and node.name not in GIVEN:
                found = found[names[found] == node.name]
                found = found[[self._made_equally(member, at) for member in found]]
            first[found[(first[found] < 0) | (names[found] == node.name)]] = at
            if found.size:
                second[at] = found[np.abs(found - here).argmin()]
                if not node.literal:
                    here = second[at]
        matches = first.tolist(), second.tolist()
        self._match_parts(0, _grouped([node.sketch for node in right]), matches)
        self._match_parts(1, groups, matches)
        return matches

    def _match_parts(self, side: int, groups: "_Groups", matches: tuple[list[int], list[int]]) -> None:
        """Matches the values that the other side holds in another layout, such as layers that one side stacks."""
        for at, node in enumerate(self.traces[side].nodes):
            for parts in node.parts:
                found = [self._holders(groups, side, at, part) for part in parts]
                for member in (each for members in found for each in members):
                    if matches[1 - side][member] < 0:
                        matches[1 - side][member] = at
                if all(found) and matches[side][at] < 0:
                    matches[side][at] = found[-1][0]

    def _holders(self, groups: "_Groups", side: int, at: int, part: Sketch) -> list[int]:
        """Returns the values of the other side that are equal to a part of a value."""
        found = _near(groups, part, 1.0 if side else self._noise[at]).tolist()
        node = self.traces[side].nodes[at]
        if not part.plain:
            return found
        if node.name in GIVEN:
            return [each for each in found if self.traces[1 - side].nodes[each].name == node.name]
        return [each for each in found if self._made_equally(*ordered(side, at, each))]

    def _made_equally(self, first: int, second: int) -> bool:
        """True if the same operation makes two values from the same values."""
        left, right = self.pair(first, second)
        if left.name != right.name or len(left.inputs) != len(right.inputs):
            return False
        return all(any(self.same(i, j) for i in left.inputs) for j in right.inputs)


class _Group(NamedTuple):
    """Values of a side that may be equal, in the order of their first projections.

    `limits` are the distances up to which they are equal to another value, in units of its noise.
    """

    members: np.ndarray
    projected: np.ndarray
    limits: np.ndarray


_Groups = Mapping[tuple, _Group]
"""The values of a side by the kind of their sketches."""


def _grouped(sketches: Sequence[Sketch], noise: Sequence[float] | None = None) -> _Groups:
    """Returns the values of a side by kind; with the noise of each, their limits are in units of one."""
    kinds: dict[tuple, list[int]] = collections.defaultdict(list)
    for at, sketch in enumerate(sketches):
        kinds[sketch.kind].append(at)
    found = {}
    for kind, members in kinds.items():
        members.sort(key=lambda at: sketches[at].projected[0].real)
        norms = np.array([sketches[at].norm for at in members])
        limits = np.full(len(members), FLOOR_FACTOR)
        if noise is not None:
            own = np.array([noise[at] for at in members])
            limits = np.minimum(FLOOR_FACTOR * own, np.maximum(CHANCE, WIDE * own))
        found[kind] = _Group(
            np.array(members),
            np.stack([sketches[at].projected for at in members]),
            norms * limits,
        )
    return found


def _near(groups: _Groups, value: Sketch, noise: float = 1.0) -> np.ndarray:
    """Returns the values of a side that are equal to a value up to noise, in execution order."""
    if value.kind not in groups:
        return np.array([], int)
    members, projected, limits = groups[value.kind]
    reach = np.sqrt(value.projected.size) * noise * limits.max()  # no single projection is farther off
    place, places = np.real(value.projected[0]), np.real(projected[:, 0])
    low, high = np.searchsorted(places, place - reach), np.searchsorted(places, place + reach, "right")
    gaps = np.sqrt(np.mean(np.abs(projected[low:high] - value.projected) ** 2, axis=1))
    return np.sort(members[low:high][gaps <= noise * limits[low:high]])
