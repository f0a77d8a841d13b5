"""The line to blame for a divergence of two programs: a list of strategies, tried in order.

The default blames the innermost function on the call stack that the other side does not have. That is wrong if a
correct value is used in the wrong place, so each strategy handles one way in which that happens. A strategy must trace
planted bugs to their function that no other one traces; ``python tests/parity/bisect/campaign.py`` counts them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from parity.builds.weights.map import HOLDERS
from parity.compare.origin.alignment import GIVEN, before_moves, ordered
from parity.compare.origin.divergence import Divergence, present
from parity.compare.origin.trace import Node, functions_around, site
from parity.ir.functions import function_of, giving_call, made_at, origin, set_outside, together, words_of
from parity.ir.location import Frame
from parity.ir.makers import library_call, library_makers


class Blame(NamedTuple):
    """The lines to blame.

    Args:
        frames: the reference's and the candidate's; None for the innermost function that only this side has.
        divergence: the operations to name, if not those at which the programs diverge.
        passing: the candidate's lines from the use of a wrong value outwards to the function that has the right one.
        given: the calls that may exchange what the blamed functions get.
    """

    frames: Sequence[Frame | None]
    divergence: Divergence | None = None
    passing: Sequence[Frame] = ()
    given: Sequence[Frame | None] = (None, None)


Strategy = Callable[[Divergence], Blame | None]
"""Searches for one way in which a correct value is used in the wrong place; returns None if it does not apply."""


def _exchanged(divergence: Divergence) -> Blame | None:
    if updated := _read_after_update(divergence):
        return updated
    if not _all_right(divergence):
        return None
    constant = divergence.has_other_constant()  # then equal values of other iterations are no exchange
    for users, operands in divergence.levels:
        nodes = divergence.alignment.pair(*operands)
        if any(node.literal or node.sketch.plain for node in nodes):
            continue
        chosen = [{node.name for node in pair} for pair in (divergence.alignment.pair(*users), nodes)]
        if chosen[0] == {"branch"} or chosen[1] == {"select_n"}:
            continue  # the function inside chose it
        alignment = divergence.alignment
        there = [
            [
                at
                for at in alignment.equals(1 - side, operands[1 - side])
                if not constant or _in_reach(trace.nodes[at], trace.nodes[users[side]])
            ]
            for side, trace in enumerate(alignment.traces)
        ]
        if not all(there):
            continue
        found = [
            _naming(divergence, side, users[side], operands[side], there[side])
            or _at_hand(divergence, side, users[side], there[side])
            for side in (0, 1)
        ]
        if around := _around_exchange(divergence, users, operands, there):
            return Blame(around, divergence.moved(users))
        if any(found):
            stacks = [site(node).own for node in divergence.alignment.pair(*users)]
            frames = [
                found[side] or next((each for each in stacks[side] if twins(each, found[1 - side])), None)
                for side in (0, 1)
            ]
            given = [_giver(divergence, side, users[side], there[side]) for side in (0, 1)]
            return Blame(frames, divergence.moved(users), given=given)
    return None


def _read_after_update(divergence: Divergence) -> Blame | None:
    """Blames the function that makes and uses a value, such as an updated queue, which the other side only returns."""
    alignment, traces = divergence.alignment, divergence.alignment.traces
    uses = [
        (side, users[side], operands[side], users) for users, operands in divergence.levels for side in (0, 1)
    ]
    uses += [
        (side, at, value, None)
        for side, at in present(divergence.ends)
        for value in traces[side].nodes[at].inputs
    ]
    for side, user, moved, users in uses:
        value = before_moves(traces[side].nodes, moved)
        made, partner = traces[side].nodes[value], alignment.matches[side][value]
        if partner < 0 or made.literal or made.sketch.plain or made.name in GIVEN:
            continue
        if traces[1 - side].nodes[partner].name != made.name:
            continue  # equal by chance
        own = site(traces[side].nodes[user]).own
        depth = together(own, site(made).own)
        if depth and not alignment.users(1 - side, partner):
            holder, unused = (
                own[len(own) - depth],
                site(traces[1 - side].nodes[users[1 - side]]).own if users else (),
            )
            lacking = next((each for each in unused if twins(each, holder)), None)
            stack, end = ((unused, lacking), (own, holder))[side]
            passing = stack[: stack.index(end) + 1] if end else ()
            return Blame(ordered(side, holder, lacking), divergence.moved(users) if users else None, passing)
    return None


def _all_right(divergence: Divergence) -> bool:
    """True if the other side also has every operand on the path, except constants and trivial values."""
    for _, operands in divergence.levels:
        for side, (at, node) in enumerate(zip(operands, divergence.alignment.pair(*operands), strict=True)):
            if divergence.alignment.matches[side][at] < 0 and not (node.literal or node.sketch.plain):
                return False
    return True


def _naming(divergence: Divergence, side: int, user: int, given: int, values: Sequence[int]) -> Frame | None:
    """Returns the innermost line around an operation that names the weight it is given instead of another."""
    nodes = divergence.alignment.traces[side].nodes
    right = {part for at in values for part in _parts(nodes[at].leaf)}
    parts = _parts(nodes[given].leaf) - right if right else set()
    return next((each for each in site(nodes[user]).own if parts & words_of(each)), None)


def _around_exchange(
    divergence: Divergence, users: Sequence[int], operands: Sequence[int], there: Sequence[Sequence[int]]
) -> list[Frame | None]:
    """Returns the lines of the innermost functions around two values and their uses if all uses are exchanged.

    None of them is wrong then, but the code that gives them their values: it makes both in one call, such as a split.
    """
    kinds, frames = [], list[Frame | None]()
    for side, (user, operand, equal) in enumerate(zip(users, operands, there, strict=True)):
        nodes = divergence.alignment.traces[side].nodes
        given, *others = (before_moves(nodes, at) for at in (operand, *equal))
        own, made = site(nodes[user]).own, site(nodes[given]).own
        if not made or any(site(nodes[at]).own != made for at in others):
            return []
        kinds.append(
            [{nodes[at].name for at in divergence.alignment.users(side, one)} for one in (given, others[0])]
        )
        depth = together(own, made)
        frames.append(divergence.alignment.innermost(own[len(own) - depth :] if depth else ()))
    exchanged = kinds[0] == kinds[1] and kinds[0][0].isdisjoint(kinds[0][1])
    return frames if exchanged and all(frames) else []


def _parts(path: str) -> set[str]:
    return set(path.split("/")) - {*HOLDERS, ""}


def _at_hand(divergence: Divergence, side: int, user: int, values: Sequence[int]) -> Frame | None:
    """Returns the line of the innermost function around an operation that also makes or uses some of the values.

    Values of another iteration of a loop, or that are made later, do not count.
    """
    nodes = divergence.alignment.traces[side].nodes
    own = site(nodes[user]).own
    values = [value for value in values if value < user]
    around = [*values, *(other for value in values for other in divergence.alignment.users(side, value))]
    here = [at for at in around if at != user and _in_reach(nodes[at], nodes[user])]
    depth = max((together(own, site(nodes[at]).own) for at in here), default=0)
    return divergence.alignment.innermost(own[len(own) - depth :] if depth else ())


def _giver(divergence: Divergence, side: int, user: int, values: Sequence[int]) -> Frame | None:
    """Returns the call that gives the innermost function around an operation all these values; None if it makes one."""
    nodes = divergence.alignment.traces[side].nodes
    own = site(nodes[user]).own
    made = [together(own, site(nodes[value]).own) for value in values if value < user]
    if len(own) < 2 or not made or not 0 < max(made) < len(own):
        return None
    return giving_call(own[: len(own) - max(made) + 1]) or own[len(own) - max(made)]


def _in_reach(node: Node, user: Node) -> bool:
    """True if two operations are in the same iteration of the loops around both."""
    loop_indices = {id(loop): iteration for loop, iteration in user.around.iterations}
    return all(
        loop_indices.get(id(loop), iteration) == iteration for loop, iteration in node.around.iterations
    )


def twins(one: Frame, other: Frame | None) -> bool:
    """True if two lines are in functions of one name in files of one name, or in methods of one name and class."""
    return other is not None and (one.named == other.named or one.method == other.method)


def _step_left_out(divergence: Divergence) -> Blame | None:
    for users, operands in divergence.levels:
        side = divergence.alignment.more(*operands)
        if side is None:
            continue
        more = site(divergence.alignment.pair(*operands)[side]).own
        own = site(divergence.alignment.pair(*users)[1 - side]).own
        unlike = [frame for frame in own if function_of(frame) not in divergence.alignment.common]
        known = (frame for each in more for frame in unlike if twins(frame, each))
        lacking = next(itertools.chain(known, unlike), None)
        ends = (operands[0], users[1]) if side == 0 else (users[0], operands[1])
        return Blame(ordered(side, None, lacking), divergence.moved(ends, ()))
    return None


def _ends_too_soon(divergence: Divergence) -> Blame | None:
    """Blames the function whose value this side uses directly, while its counterpart processes the value further."""
    names = {node.name for node in divergence.nodes if node}
    if len(divergence.path) > 1 or (divergence.pair and len(names) == 1):
        return None
    for side, at in present(divergence.ends):
        for value in divergence.alignment.traces[side].nodes[at].inputs:
            frame = _made_by(divergence, side, value)
            if frame is not None:
                return Blame(ordered(side, None, frame))
    return None


def _made_by(divergence: Divergence, side: int, value: int) -> Frame | None:
    """Returns the other side's line that makes only the value; None unless it omits the further operation."""
    alignment, ends = divergence.alignment, divergence.ends
    node, nodes = divergence.nodes[side], alignment.traces[side].nodes
    value = before_moves(nodes, value)
    partner, other = alignment.matches[side][value], ends[1 - side]
    plain = nodes[value].literal or nodes[value].sketch.plain
    if partner < 0 or plain or not nodes[value].inputs or node is None or not _one_run(nodes[value], node):
        return None
    frame = alignment.innermost(site(alignment.traces[1 - side].nodes[partner]).own)
    goes_on = all(_one_run(node, nodes[user]) for user in alignment.users(side, ends[side] or 0))
    if goes_on and site(nodes[value]).own[:1] != site(node).own[:1]:
        return None  # the function does not end here
    if other is None or frame is None:
        return frame
    user = alignment.traces[1 - side].nodes[other]
    names = {nodes[at].name for at in alignment.users(side, ends[side] or 0)}
    given = any(alignment.same(*ordered(side, value, each)) for each in user.inputs)
    skipped = given and user.name in names
    return frame if skipped and frame.function != next(iter(functions_around(user)), "") else None


def _one_run(value: Node, more: Node) -> bool:
    """True if one call of a function makes both values: their loop iterations and outer stack lines are equal."""
    one, other = (source.own or source.library for source in (site(value), site(more)))
    if not one or not other or value.around.iterations != more.around.iterations:
        return False
    return (one[0].file, one[0].function, one[1:]) == (other[0].file, other[0].function, other[1:])


def _constructed(divergence: Divergence) -> Blame | None:
    if not divergence.has_other_constant():
        return None
    made = origin(*(site(node).own for node in divergence.nodes if node))
    if made and (made.how == "made" or function_of(made.lines[0]) == function_of(made.lines[1])):
        return Blame(made.lines)
    found = [_constructor(divergence, side) for side in (0, 1)]
    return Blame(found) if any(found) else None


def _constructor(divergence: Divergence, side: int) -> Frame | None:
    """Returns the line that constructs the object whose class works elsewhere, in the class that calls the object."""
    at = divergence.ends[side] or 0
    nodes, matches = divergence.alignment.traces[side].nodes, divergence.alignment.matches[side]
    own, shared = site(nodes[at]).own, 0
    for other, node in enumerate(nodes):
        if other != at and node.name == nodes[at].name and not node.literal and matches[other] >= 0:
            pairs = zip(own, site(node).own, strict=False)
            equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            if equal < len(own):  # if all lines are equal, it may be another instance of the class
                shared = max(shared, equal)
    return made_at(own[shared], own[shared - 1]) if shared else None


def makers_of_both(divergence: Divergence) -> list[str]:
    """Returns the library's functions that made closures of both sides in which constants differ."""
    if not all(node.literal for pair in divergence.given[:1] for node in divergence.alignment.pair(*pair)):
        return []
    left, right = (
        [function for _, function in library_makers(site(node).library)] if node and divergence.given else []
        for node in divergence.nodes
    )
    return [function for function in left if function in right]


def set_by_callers(divergence: Divergence) -> str:
    """Returns the function whose equal code makes both values by other operations; empty if there is none.

    A call that makes both values on both sides does the same operations.
    """
    if not divergence.path:
        return ""
    ends, alignment = divergence.path[-1], divergence.alignment
    left, right = alignment.pair(*ends)
    partners = alignment.pair(alignment.matches[1][ends[1]], alignment.matches[0][ends[0]])
    if min(alignment.matches[side][at] for side, at in enumerate(ends)) >= 0 and all(
        _one_run(*each) for each in zip((left, right), partners, strict=True)
    ):
        return ""
    return "" if left.name == right.name else set_outside(site(left).own, site(right).own)


def _library_constant(divergence: Divergence) -> Blame | None:
    sources = [None if node is None else site(node) for node in divergence.nodes]
    if not all(one and one.library for one in sources):
        return None
    equal = all(
        not one.own or function_of(one.own[0]) in divergence.alignment.common for one in sources if one
    )
    makers = [library_makers(one.library) for one in sources if one]
    others = makers[0] != makers[1] and not set(makers[0]).isdisjoint(makers[1])
    if not (equal or others or makers_of_both(divergence)):
        return None
    files = [{frame.file for frame in frames} for frames in divergence.alignment.frames]
    found = [
        library_call(one.library, each, one.own) for one, each in zip(sources, files, strict=True) if one
    ]
    return Blame(found) if any(found) else None


STRATEGIES: Mapping[str, Strategy] = {
    "constructor": _constructed,
    "ends too soon": _ends_too_soon,
    "exchanged": _exchanged,
    "library constant": _library_constant,
    "step left out": _step_left_out,
}
"""The strategies by name, in the order of the attempts. docs/find-the-cause.md explains them and lists planted bugs."""
