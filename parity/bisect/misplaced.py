"""Who hands a value over: a right value in the wrong place is the fault of the function that had both."""

import itertools
import re
from collections.abc import Hashable, Sequence

from parity.bisect.alignment import Alignment
from parity.bisect.source import function_of, site
from parity.bisect.trace import Node
from parity.ir.location import Frame, equation_source

__all__ = ["Level", "confused", "left_out", "left_to_itself", "levels", "made_wrong"]

Level = tuple[tuple[int, int], tuple[int, int]]
"""A pair of operations that stand for each other, and a pair of operands of theirs that are not the same value."""


def confused(alignment: Alignment, level: Level, common: frozenset[Hashable]) -> list[Frame | None] | None:
    """Returns the lines, a side each, of the innermost function that had both of two values and took another.

    Args:
        alignment: both programs.
        level: operations with their operands.
        common: functions that both sides share.

    Returns:
        None where one of the values is on one side only: it is wrong, not in the wrong place.
    """
    users, operands = level
    nodes = [alignment.traces[side].nodes[at] for side, at in enumerate(operands)]
    if any(node.literal or node.sketch.plain for node in nodes):
        return None
    there = [alignment.equals(1 - side, operands[1 - side]) for side in (0, 1)]
    if not all(there):
        return None
    found = [_at_hand(alignment, side, users[side], there[side], common) for side in (0, 1)]
    return found if any(found) else None


def made_wrong(alignment: Alignment, operands: tuple[int, int]) -> bool:
    """Whether one of two values, which are not the same, is none of the other side's."""
    nodes = [alignment.traces[side].nodes[at] for side, at in enumerate(operands)]
    return any(
        alignment.matches[side][at] < 0 and not (node.literal or node.sketch.plain)
        for side, (at, node) in enumerate(zip(operands, nodes, strict=True))
    )


def _at_hand(
    alignment: Alignment, side: int, user: int, values: Sequence[int], common: frozenset[Hashable]
) -> Frame | None:
    """Returns the line of the innermost function around an operation in which some values are made or used.

    What another turn of a loop makes is not at hand in this one.
    """
    nodes = alignment.traces[side].nodes
    own = _stack(nodes[user])
    around = [*values, *(other for value in values for other in alignment.users(side, value))]
    here = [at for at in around if at != user and _in_reach(nodes[at], nodes[user])]
    depth = max((_together(own, _stack(nodes[at])) for at in here), default=0)
    outer = own[len(own) - depth :] if depth else ()
    return next((frame for frame in outer if function_of(frame) not in common), None)


def _in_reach(node: Node, user: Node) -> bool:
    """Whether two operations are in the same turn of the loops that are around both."""
    turns = {id(loop): turn for loop, turn in user.around.iterations}
    return all(turns.get(id(loop), turn) == turn for loop, turn in node.around.iterations)


def _stack(node: Node) -> tuple[Frame, ...]:
    """Returns the call stack of an operation, with that of the loops around it, whose bodies JAX traces apart."""
    own = site(node).own
    for loop, _ in reversed(node.around.iterations):
        outer = equation_source(loop).own
        own += () if own and outer and own[-1] == outer[-1] else outer
    return own


def _together(one: Sequence[Frame], other: Sequence[Frame]) -> int:
    """Returns how many functions, from the outermost, two call stacks share."""
    count = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if (left.file, left.function) != (right.file, right.function):
            break
        count += 1
        if left.line != right.line:
            break
    return count


def left_to_itself(
    alignment: Alignment, level: Level, common: frozenset[Hashable]
) -> Sequence[Frame | None] | None:
    """Returns the callers of a function that makes a value itself on one side and is handed it on the other.

    Both make it so where they are handed none: whether they are is their caller's doing.

    Args:
        alignment: both programs.
        level: operations with their operands.
        common: functions that both sides share.
    """
    users, makers = (
        [_stack(alignment.traces[side].nodes[at]) for side, at in enumerate(pair)] for pair in level
    )
    for side in (0, 1):
        at = next((at for at, frame in enumerate(makers[side]) if function_of(frame) not in common), 0)
        if at == 0 or at + 1 >= len(makers[side]) or not makers[1 - side]:
            continue
        called, own, caller = makers[side][at - 1 : at + 2]
        twin = next((at for at, frame in enumerate(users[1 - side]) if _twins(frame, own)), None)
        if (
            twin is None
            or twin + 1 >= len(users[1 - side])
            or any(_twins(each, own) for each in makers[1 - side])
        ):
            continue
        if called.function.rpartition(".")[2] in _words(users[1 - side][twin]):
            found = [caller, users[1 - side][twin + 1]]
            return found if side == 0 else found[::-1]
    return None


def left_out(
    alignment: Alignment, level: Level, common: frozenset[Hashable]
) -> Sequence[Frame | None] | None:
    """Returns, for the side that takes a value as it is where the other makes more of it first, where that would be.

    Args:
        alignment: both programs.
        level: operations with their operands.
        common: functions that both sides share.
    """
    users, operands = level
    side = alignment.more(*operands)
    if side is None:
        return None
    more = _stack(alignment.traces[side].nodes[operands[side]])
    own = _stack(alignment.traces[1 - side].nodes[users[1 - side]])
    twins = (frame for each in more for frame in own if _twins(frame, each))
    rest = (frame for frame in own if function_of(frame) not in common)
    lacking = next(twins, None) or next(rest, None)
    return (None, lacking) if side == 0 else (lacking, None)


def _twins(one: Frame, other: Frame) -> bool:
    return (one.file.rpartition("/")[2], one.function) == (other.file.rpartition("/")[2], other.function)


def _words(frame: Frame) -> set[str]:
    """Returns the words in the function around a line."""
    _, text = function_of(frame)
    return set(re.findall(r"\w+", text))


def levels(path: Sequence[tuple[int, int]]) -> list[Level]:
    """Returns each pair of a path with the pair below it."""
    return list(itertools.pairwise(path))
