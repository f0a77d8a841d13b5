"""The first operations from which the values of two evaluated programs differ."""

import collections
import dataclasses
import functools
import itertools
import operator
import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence

from parity.compare.origin.alignment import GIVEN, MOVES, PARTS, RECAST, Alignment, ordered, reached
from parity.compare.origin.sketch import opposite
from parity.compare.origin.trace import Node, functions_around, site
from parity.ir.makers import backward_rule

JOINS = frozenset({"stack", "concatenate"})
BRANCH = frozenset({"branch"})
NEAR = 3
"""Innermost functions around an operation that identify the code that made it."""


Level = tuple[tuple[int, int], tuple[int, int]]
"""A pair of corresponding operations, and a pair of their operands that are not the same value."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """A place where the two programs diverge: its inputs agree, its result does not.

    Args:
        alignment: the programs.
        ends: the number of the value on each side; None if a side has none there.
        place: progress of the reference, as the number of the last input.
        operands: positions, on each side, of operands that are not the same value.
        path: pairs of operations of both sides that lead here; each pair is an operand of the one before.
        kept: True for values that only a backward pass uses, which is what differs.
        nan: True if the value is NaN, which the other side's results are not.
        faint: True if all results that it reaches are equal up to noise, except some entries.
    """

    alignment: Alignment
    ends: tuple[int | None, int | None]
    place: int
    _: dataclasses.KW_ONLY
    operands: tuple[tuple[int, int], ...] = ()
    path: tuple[tuple[int, int], ...] = ()
    kept: bool = False
    nan: bool = False
    faint: bool = False

    @property
    def pair(self) -> tuple[int, int] | None:
        """The operations of both sides; None if one has none there."""
        first, second = self.ends
        return None if first is None or second is None else (first, second)

    @property
    def nodes(self) -> list[Node | None]:
        """The operation on each side; None if a side has none there."""
        return [
            None if at is None else trace.nodes[at]
            for trace, at in zip(self.alignment.traces, self.ends, strict=True)
        ]

    @property
    def levels(self) -> Iterator[Level]:
        """Each pair of operations on the path to the place, with the pair of operands that continues the path.

        The last operands are arguments if these differ.
        """
        yield from itertools.pairwise(self.path)
        if self.pair and self.given and all(node.label for node in self.alignment.pair(*self.given[0])):
            yield self.pair, self.given[0]

    @property
    def given(self) -> list[tuple[int, int]]:
        """The pairs of operands that are not the same value."""
        if self.pair is None:
            return []
        one, other = self.alignment.pair(*self.pair)
        return [(one.inputs[i], other.inputs[j]) for i, j in self.operands]

    def differs_in_constants(self) -> bool:
        """True if all operands that are not the same value are constants."""
        return bool(self.given) and all(
            node.literal for pair in self.given for node in self.alignment.pair(*pair)
        )

    def has_other_constant(self) -> bool:
        """True if both sides do one operation with different constants."""
        return self.differs_in_constants() and len({node.name for node in self.nodes if node}) == 1

    def moved(
        self, users: tuple[int, int], operands: tuple[tuple[int, int], ...] | None = None
    ) -> "Divergence":
        """Returns the divergence at another pair of operations."""
        unlike = self.alignment.unlike(*users) if operands is None else operands
        return dataclasses.replace(self, ends=users, operands=unlike)


def find_divergences(
    alignment: Alignment,
    failing: Sequence[tuple[int, int]],
    differing: Sequence[tuple[int, int]] = (),
    leaves: Iterable[str] = (),
) -> list[Divergence]:
    """Returns the places where the programs diverge on the way to results that differ, in order.

    A difference counts only if it reaches such a result through values that all differ. If values agree again
    further on, they were only computed in another way.

    Args:
        failing: value numbers of results that differ, of both sides.
        differing: those of all results that differ, from which the former may follow.
        leaves: paths of the results that differ; a stopped gradient must be behind all that the forward pass reads.
    """
    search = _Search(alignment)
    found = search.run(_first_results(alignment, failing, differing)) or search.run(failing)
    if found and search.for_backward(found[0]):
        ends = [each.ends for each in found]
        first = search.run(_unused_losses(alignment))[:1]
        found[:0] = [each for each in first if each.ends in ends or search.has_gradient(each)]
    alone = bool(found) and found[0].pair is None
    constant = bool(found) and found[0].has_other_constant()
    if not constant and any(search.for_backward(each) for each in (found if alone else found[:1])):
        found[:0] = _stopped(alignment, leaves)
    return [*_first_nan(alignment, failing), *found]


def _first_results(
    alignment: Alignment, failing: Sequence[tuple[int, int]], differing: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Returns the failing results, or those behind them, that are computed from no other result that differs.

    New weights follow from the moments that they are computed with: how one side writes the rest is not the cause.
    """
    pairs = list(dict.fromkeys([*failing, *differing]))
    before = []  # of each result, the results that both sides compute it from, as bits
    for side, trace in enumerate(alignment.traces):
        own: dict[int, int] = collections.defaultdict(int)
        for place, pair in enumerate(pairs):
            own[pair[side]] |= 1 << place
        below: list[int] = []
        for node in trace.nodes:
            below.append(functools.reduce(operator.or_, (below[i] | own.get(i, 0) for i in node.inputs), 0))
        before.append([below[pair[side]] for pair in pairs])
    shared = [left & right for left, right in zip(*before, strict=True)]
    behind = functools.reduce(
        operator.or_, (shared[place] | 1 << place for place in range(len(set(failing)))), 0
    )
    return [pair for place, pair in enumerate(pairs) if behind >> place & 1 and not shared[place]]


def _first_nan(alignment: Alignment, failing: Sequence[tuple[int, int]]) -> list[Divergence]:
    """Returns the operation that makes the NaN of a result that is NaN on one side only.

    Empty if an argument is NaN, or if other functions make values on the way to it that the other side lacks.
    """
    for pair in failing:
        has_nan = [node.sketch.has_nan for node in alignment.pair(*pair)]
        if has_nan[0] != has_nan[1]:
            side = has_nan.index(True)
            at, nodes = pair[side], alignment.traces[side].nodes
            while below := [i for i in nodes[at].inputs if nodes[i].sketch.has_nan]:
                at = below[0]
            function = functions_around(nodes[at])[:1]
            before = _Search(alignment).front(side, {at: -1})
            if nodes[at].name not in GIVEN and all(
                functions_around(nodes[i])[:1] == function for i in before
            ):
                return [Divergence(alignment, ordered(side, at, None), at, nan=True)]
    return []


def _unused_losses(alignment: Alignment) -> list[tuple[int, int]]:
    """Returns the last number of each forward pass that is made and not used, if both sides have one that differs.

    A program that returns gradients alone makes its loss for nothing, and differs first on the way to it.
    """
    found = []
    for side, trace in enumerate(alignment.traces):
        unused = (
            at
            for at in reversed(range(len(trace.nodes)))
            if not alignment.users(side, at)
            and at not in trace.outputs
            and not (node := trace.nodes[at]).around.backward
            and node.sketch.shape == ()
            and node.sketch.epsilon
            and alignment.matches[side][at] < 0
        )
        found.append(next(unused, None))
    first, second = found
    return [] if first is None or second is None else [(first, second)]


def present(ends: Sequence[int | None]) -> list[tuple[int, int]]:
    """Returns side and number of the values that exist, given one of each side or None."""
    return [(side, at) for side, at in enumerate(ends) if at is not None]


def _turn(node: Node) -> list[int]:
    return [at for _, at in node.around.iterations]


class _Search:
    def __init__(self, alignment: Alignment):
        self._alignment, self._traces, self._matches = alignment, alignment.traces, alignment.matches
        self._residuals: list[set[int]] = [set(), set()]

    def run(self, ends: Sequence[tuple[int, int]]) -> list[Divergence]:
        first, second = (self.front(side, {pair[side]: pair[1 - side] for pair in ends}) for side in (0, 1))
        known = [pair for pair in dict.fromkeys(ends) if pair[0] in first and pair[1] in second]
        choices = self._choices()
        first, second = (
            [at for at in front if not self._follows(side, at, choices)]
            for side, front in enumerate((first, second))
        )
        pairs = [self._completed(pair) for pair in self._pair(first, second, known)]
        pairs += [self._descend(*pair, pair[0]) for pair in choices]
        # Values that are equal up to noise are no place: what differs is too small to be seen there.
        parted = [each for each in pairs if each.pair is None or not self._alignment.same(*each.pair)]
        faint = all(self._alignment.same(*pair) for pair in ends)
        found = sorted(
            (dataclasses.replace(each, kept=self._is_kept(each), faint=faint) for each in parted),
            key=self._order,
        )
        before = omitted_before(self._alignment, found)
        return [*before, *(each for each in found if each not in before)]

    def _is_kept(self, divergence: Divergence) -> bool:
        return all(at in self._residuals[side] for side, at in self._ends(divergence))

    def for_backward(self, divergence: Divergence) -> bool:
        """True if a divergence, or the start of its path, is in the backward pass, or only kept for it."""
        ends = self._ends(divergence)
        return divergence.kept or all(self._traces[side].nodes[at].around.backward for side, at in ends)

    def has_gradient(self, divergence: Divergence) -> bool:
        """True if the line of an operation of the forward pass is also one of the backward pass."""
        lines = [site(self._traces[side].nodes[at]).own[:1] for side, at in present(divergence.ends)]
        backward = (node for trace in self._traces for node in trace.nodes if node.around.backward)
        return not self.for_backward(divergence) and any(site(node).own[:1] in lines for node in backward)

    def _ends(self, divergence: Divergence) -> list[tuple[int, int]]:
        return present(divergence.path[0] if divergence.path else divergence.ends)

    def _order(self, pair: Divergence) -> tuple:
        """Returns the sort key: consequences and rounding last, then values of one side, then backward, then progress.

        What one side computes alone may be another way to write what both do. A cast or a reordering that only one side
        has, parts of other sizes, and an argument, come after operations that compute. So does an operation that is
        only another form, and a mask whose opposite the other side uses.
        """
        follows = pair.place >= len(self._traces[0].nodes)
        follows = follows or (pair.pair is not None and self._alignment.follows(*pair.pair))
        ends = self._ends(pair)
        nodes = [self._traces[side].nodes[at] for side, at in ends]
        alone = pair.pair is None or not GIVEN.isdisjoint(
            node.name for node in self._alignment.pair(*pair.pair)
        )
        if len(ends) == 1 or nodes[0].sketch.kind[0] != nodes[1].sketch.kind[0]:
            form = (GIVEN | RECAST | PARTS).issuperset(node.name for node in nodes)
            form = form or (len(ends) == 2 and self._is_form(*(at for _, at in ends)))
        else:
            form = opposite(*(node.sketch for node in nodes))
        return follows, form, alone, self.for_backward(pair), pair.place

    def _is_form(self, first: int, second: int) -> bool:
        """True if one operation takes values that differ in their form only, such as once for all rows."""
        one, other = self._alignment.pair(first, second)
        operands = self._alignment.unlike(first, second)
        ends = [self._unmoved(one.inputs[i], other.inputs[j]) for i, j in operands]
        return one.name == other.name and bool(ends) and all(itertools.starmap(self._alignment.same, ends))

    def front(self, side: int, ends: Mapping[int, int]) -> list[int]:
        """Walks back from results, each with its partner; returns the first values that the other side lacks."""
        nodes, match = self._traces[side].nodes, self._matches[side]
        waiting, seen, front = list(ends), set(ends), []
        fed: dict[int, list[int]] = collections.defaultdict(list)
        while waiting:
            at = waiting.pop()
            elsewhere = at in ends and match[at] not in (-1, ends[at]) and not nodes[at].sketch.plain
            lacking = [i for i in self._alignment.deciding(side, at) if not (elsewhere or self._has(side, i))]
            if not lacking:
                front.append(at)
            for i in lacking:
                fed[i].append(at)
            fresh = [i for i in lacking if i not in seen]
            seen.update(fresh)
            waiting += fresh
        self._residuals[side] = self._kept_for_later(side, seen.difference(ends), fed)
        return sorted(front)

    def _has(self, side: int, at: int) -> bool:
        """True if the other side also has a value, or the value that it moves or casts: its user computes with it."""
        at = self._alignment.unmoved(side, at)
        return self._matches[side][at] >= 0 or self._traces[side].nodes[at].literal

    def _kept_for_later(self, side: int, values: set[int], fed: Mapping[int, list[int]]) -> set[int]:
        """Returns the values of the forward pass that only the backward pass uses.

        A side without that backward pass lacks them, too, so they are a consequence, not the cause.
        """
        nodes, kept = self._traces[side].nodes, set()
        for at in sorted(values, reverse=True):
            later = all(user in kept or nodes[user].around.backward for user in fed[at])
            if later and not nodes[at].around.backward:
                kept.add(at)
        return kept

    def _place(self, side: int, at: int) -> int:
        """Returns the reference's number of the last input of a value; for a consequence, the length of the reference.

        If it has none but arguments, such as weights of any layer, its own place counts.
        """
        nodes = self._traces[side].nodes
        if self._matches[side][at] >= 0 or nodes[at].literal or at in self._residuals[side]:
            # the other side has it elsewhere, such as zeros, or it is a consequence
            return len(self._traces[0].nodes)
        if places := self._computed(side, nodes[at].inputs):
            return max(places)
        last = max((i for i in nodes[at].inputs if not self._has(side, i)), default=at)
        return last if side == 0 else max(self._computed(side, range(last)), default=0)

    def _computed(self, side: int, values: Iterable[int]) -> list[int]:
        """Returns the reference's numbers of those values that both sides compute."""
        nodes, found = self._traces[side].nodes, [self._alignment.unmoved(side, i) for i in values]
        pairs = [ordered(side, i, self._matches[side][i]) for i in found if not nodes[i].literal]
        pairs = [pair for pair in pairs if min(pair) >= 0]
        return [
            pair[0] for pair in pairs if GIVEN.isdisjoint(node.name for node in self._alignment.pair(*pair))
        ]

    def _pair(self, first: list[int], second: list[int], known: Sequence[tuple]) -> list[Divergence]:
        """Pairs corresponding operations: known results, then the most likely pairs."""
        rest, pairs = [at for at in first if at not in {left for left, _ in known}], []
        for left, right in known:
            pairs.append(self._descend(left, right, min(self._place(0, left), self._place(1, right))))
        for at in [at for at in second if at not in {right for _, right in known}]:
            best = max(rest, key=lambda other, at=at: self._likeness(other, at), default=None)
            if best is not None and self._likeness(best, at) > 0:
                rest.remove(best)
                pairs.append(self._descend(best, at, min(self._place(0, best), self._place(1, at))))
            else:
                pairs.append(Divergence(self._alignment, (None, at), self._place(1, at)))
        return pairs + [Divergence(self._alignment, (at, None), self._place(0, at)) for at in rest]

    def _likeness(self, first: int, second: int) -> float:
        """Returns a score for the likelihood that two operations correspond to each other; 0 if they do not."""
        left, right = self._alignment.pair(first, second)
        words = zip(functions_around(left)[:NEAR], functions_around(right)[:NEAR], strict=False)
        given = [
            [self._alignment.unmoved(side, i) for i in node.inputs] for side, node in enumerate((left, right))
        ]
        shared = sum(any(self._alignment.same(i, j) for j in given[1]) for i in given[0])
        near = any(one == other for one, other in words)
        if left.around.backward != right.around.backward or not (shared or near):
            return 0.0
        return 4 * (left.name == right.name) + 2 * shared - abs(first - second) * 1e-6

    def _completed(self, pair: Divergence) -> Divergence:
        """Returns a pair of operations; if they do not correspond, the first of them with its counterpart.

        The counterpart may make a value that is correct elsewhere, such as the mask of another layer.
        """
        ends = self._ends(pair)
        if len(ends) == 2:
            (_, first), (_, second) = ends
            one, other = self._alignment.pair(first, second)
            if one.name == other.name and functions_around(one)[:1] == functions_around(other)[:1]:
                return pair
        for _, side, at in sorted((self._place(side, at), side, at) for side, at in ends):
            other = self._standing(side, at)
            if other is not None:
                return self._descend(*ordered(side, at, other), pair.place)
        return pair

    def _standing(self, side: int, at: int) -> int | None:
        """Returns the other side's counterpart of an operation, which makes another value.

        It comes from the same code, or takes the same other operand, such as a product with the same weight.
        """
        node, nodes = self._traces[side].nodes[at], self._traces[1 - side].nodes
        if node.literal or node.name in GIVEN or self._matches[side][at] >= 0:
            return None
        words, best, likest = functions_around(node), None, None
        for other in self._alignment.like(side, at):
            each, ends = nodes[other], ordered(side, at, other)
            if self._alignment.same(*ends):
                continue
            second = functions_around(each)
            code = len(os.path.commonprefix([words[:NEAR], second[:NEAR]]))
            iteration, around = _turn(each) == _turn(node), len({*words}.intersection(second))
            if code < 2 and not (iteration and around > 1 and self._alignment.shares(*ends)):
                continue
            free = self._matches[1 - side][other] < 0
            like = (code, iteration, free, around, -abs(other - at))
            if likest is None or like > likest:
                best, likest = other, like
        return best

    def _choices(self) -> list[tuple[int, int]]:
        """Returns the first conditions whose values differ, so that another branch or iteration count follows.

        Programs with other branches or loops have no conditions that correspond.
        """
        taken = [[node for node in trace.nodes if node.name == "branch"] for trace in self._traces]
        if len({len({id(node.equation) for node in side}) for side in taken}) > 1:
            return []
        pairs = ((left.inputs[1], right.inputs[1]) for left, right in zip(*taken, strict=False))
        return [pair for pair in pairs if not self._alignment.same(*pair)][:1]

    def _follows(self, side: int, at: int, choices: Sequence[tuple[int, int]]) -> bool:
        """True if an operation depends on a condition whose value differs."""
        decided = self._traces[side].nodes[at].around.conditions
        return any(pair[side] in decided for pair in choices)

    def _descend(self, first: int, second: int, place: int) -> Divergence:
        """Follows differing operands, whose values exist on both sides, to their origin."""
        path = [self._unmoved(first, second, BRANCH)]
        found = self._between(path, place)
        while found.operands:
            left, right = self._alignment.pair(*path[-1])
            names = {left.name, right.name}
            if not (len(names) == 1 or names == JOINS) or len(left.inputs) != len(right.inputs):
                break
            pairs = [self._uncast(left.inputs[i], right.inputs[j]) for i, j in found.operands]
            pairs = [pair for pair in pairs if not self._alignment.same(*pair)]
            if not pairs:
                break  # the operands differ in their form only
            pair = pairs[-1 if left.name == "branch" else 0]  # the condition first
            makers = [node.name for node in self._alignment.pair(*pair)]
            if GIVEN.issuperset(makers) or "constant" in makers:
                break
            path.append(pair)
            found = self._between(path, place)
        return dataclasses.replace(found, path=tuple(path))

    def _uncast(self, first: int, second: int) -> tuple[int, int]:
        """Returns two values before moves; also before casts, if they differ there, too."""
        before = self._unmoved(first, second, RECAST)
        return self._unmoved(first, second) if self._alignment.same(*before) else before

    def _unmoved(self, first: int, second: int, moves: frozenset[str] = MOVES) -> tuple[int, int]:
        """Returns two values; if different operations make them, the values before they were moved."""

        def before(side: int, at: int) -> int:
            nodes = self._traces[side].nodes
            while nodes[at].name in moves and nodes[nodes[at].inputs[0]].name not in GIVEN:
                at = nodes[at].inputs[0]
            return at

        left, right = self._alignment.pair(first, second)
        return (first, second) if left.name == right.name else (before(0, first), before(1, second))

    def _between(self, path: Sequence[tuple[int, int]], place: int) -> Divergence:
        return Divergence(self._alignment, path[-1], place, operands=self._alignment.unlike(*path[-1]))


def omitted_before(alignment: Alignment, found: Sequence[Divergence]) -> list[Divergence]:
    """Returns the values of one side alone from which the first pair is computed, if the other side has none.

    An operation that both sides do is the first difference itself.
    """
    if not found or found[0].pair is None or len({node.name for node in found[0].nodes if node}) == 1:
        return []
    below = [
        set(reached([at], lambda at, nodes=trace.nodes: nodes[at].inputs))
        for at, trace in zip(found[0].pair, alignment.traces, strict=True)
    ]
    sides = [
        [each for each in found if not (each.pair or each.kept) and each.ends[side] in below[side]]
        for side in (0, 1)
    ]
    nodes = [node for each in itertools.chain(*sides) for node in each.nodes if node]
    if any(node.equation and node.equation.outvars[0].aval.dtype == bool for node in nodes):
        return []  # a choice that one side writes in another way
    return [] if all(sides) else sides[0] or sides[1]


def _stopped(alignment: Alignment, leaves: Iterable[str]) -> list[Divergence]:
    """Returns the places where only one side stops a gradient, the likeliest first; one, if gradients are of leaves.

    Its value is made of all leaves whose gradients differ, and of the fewest others.
    """
    cuts = [
        [at for at, node in enumerate(trace.nodes) if node.name == "stop_gradient"]
        for trace in alignment.traces
    ]
    nodes = alignment.traces[0].nodes
    first = next((at for at, node in enumerate(nodes) if node.around.backward), len(nodes))
    failing = {nodes[given].label for node in nodes[:first] for given in node.inputs}.intersection(leaves)
    found = []
    for side, at in [(0, at) for at in cuts[0]] + [(1, at) for at in cuts[1]]:
        partner = alignment.matches[side][at]
        if not alignment.users(side, at):
            continue  # a statistic that is only returned
        if partner < 0 or any(alignment.same(*ordered(side, at, other)) for other in cuts[1 - side]):
            continue  # the stopped values may differ only as values, such as in a softmax
        other, nodes = _used_instead(alignment, side, at), alignment.traces[1 - side].nodes
        uses = (other, *alignment.users(1 - side, other))
        if any(backward_rule(frame) for use in uses for frame in site(nodes[use]).own):
            continue  # the rule may stop the gradient, too
        ends = ordered(side, at, other)
        made_of = set() if _only_decides(alignment, side, at) else _leaves_below(alignment, ends[0])
        if made_of and made_of.issuperset(failing):  # a value made of no leaf passes no gradient anyway
            nodes = alignment.traces[side].nodes
            used = reached([at], functools.partial(alignment.users, side))
            needed = any(nodes[each].around.backward for each in used)  # else a statistic
            found.append(((needed, -len(made_of)), ends))
    found.sort(key=lambda each: (each[0], each[1][0]), reverse=True)
    likeliest = found[:1] if failing else [each for each in found if each[0][0] is found[0][0][0]]
    return [Divergence(alignment, ends, ends[0]) for _, ends in likeliest]


def _only_decides(alignment: Alignment, side: int, at: int) -> bool:
    """True if only integers and masks are computed from a value, which pass no gradient anyway."""
    nodes = alignment.traces[side].nodes

    def floats(value: int) -> list[int]:
        return [user for user in alignment.users(side, value) if nodes[user].sketch.epsilon]

    return all(alignment.users(side, each) for each in reached([at], floats))


def _used_instead(alignment: Alignment, side: int, at: int) -> int:
    """Returns the other side's operation that uses a value as this side uses its stopped one, else the value."""
    nodes, best = alignment.traces[1 - side].nodes, (0, alignment.matches[side][at])
    for user in alignment.users(side, at):
        for use in alignment.equals(side, user):
            given = any(alignment.same(*ordered(side, at, each)) for each in nodes[use].inputs)
            further = {nodes[each].name for each in alignment.users(1 - side, use)}
            if nodes[use].name != "stop_gradient":
                best = max(best, (1 + given + (further != {"stop_gradient"}), use))
    return best[1]


def _leaves_below(alignment: Alignment, at: int) -> set[str]:
    """Returns the paths of the arguments that a value of the reference depends on."""
    nodes = alignment.traces[0].nodes
    return {nodes[each].label for each in reached([at], lambda each: nodes[each].inputs)} - {""}
