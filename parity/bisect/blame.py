"""Who decided, where the code at an operation did not: the loop, the constructor, the function that ended too soon."""

import ast
import linecache
from collections.abc import Hashable, Iterable, Iterator, Sequence

from parity.bisect.alignment import Alignment, Divergence
from parity.bisect.misplaced import Level
from parity.bisect.source import function_of, site
from parity.bisect.trace import Node
from parity.ir.location import Frame, SourceLocation, equation_source

__all__ = ["made_with", "other_turn", "unfinished"]

Frames = list[Frame | None]


def other_turn(alignment: Alignment, level: Level, common: frozenset[Hashable]) -> Frames | None:
    """Returns the lines of two loops that hand their turns the entries of one array in another order.

    Args:
        alignment: both programs.
        level: operations with their operands.
        common: functions that both sides share.
    """
    turns = [_turn_behind(alignment.traces[side].nodes, at) for side, at in enumerate(level[1])]
    if turns[0] is None or turns[1] is None:
        return None
    whole = [node.inputs[0] for node in turns if node]
    number = [node.around.iterations[-1][1] for node in turns if node]
    if number[0] == number[1] or not alignment.same(whole[0], whole[1]):
        return None
    return [_not_shared(equation_source(node.around.iterations[-1][0]).own, common) for node in turns if node]


def _turn_behind(nodes: Sequence[Node], at: int) -> Node | None:
    """Returns the entry that a loop handed to a turn, of which a value is a cast or a movement; None for others."""
    while nodes[at].name != "turn":
        if len(nodes[at].inputs) != 1:
            return None
        at = nodes[at].inputs[0]
    return nodes[at]


def unfinished(alignment: Alignment, divergence: Divergence, common: frozenset[Hashable]) -> Frames | None:
    """Returns, for a side that goes on with a value of which the other makes more first, who made that value.

    On the other side it is one run of a function that makes the value and more of it; so what stands for that
    function ended too soon.

    Args:
        alignment: both programs.
        divergence: where they part.
        common: functions that both sides share.
    """
    ends = (divergence.reference, divergence.candidate)
    for side in (0, 1):
        at, other = ends[side], ends[1 - side]
        if at is None or len(divergence.path) > 1 or _unlike_names(alignment, ends) is False:
            continue
        node, nodes = alignment.traces[side].nodes[at], alignment.traces[side].nodes
        for value in node.inputs:
            partner = alignment.matches[side][value]
            plain = nodes[value].literal or nodes[value].sketch.plain
            if partner < 0 or plain or not nodes[value].inputs or not _one_run(nodes[value], node):
                continue
            if other is not None and not _skipped(alignment, side, at, other, partner):
                continue
            made = alignment.traces[1 - side].nodes[partner]
            frame = _not_shared(site(made).own, common)
            if frame is None or (other is not None and frame.function == _first(alignment, 1 - side, other)):
                continue
            found: Frames = [None, None]
            found[1 - side] = frame
            return found
    return None


def _unlike_names(alignment: Alignment, ends: tuple[int | None, int | None]) -> bool:
    names = {trace.nodes[at].name for trace, at in zip(alignment.traces, ends, strict=True) if at is not None}
    return len(names) > 1 or None in ends


def _first(alignment: Alignment, side: int, at: int) -> str:
    own = site(alignment.traces[side].nodes[at]).own
    return own[0].function if own else ""


def _skipped(alignment: Alignment, side: int, at: int, other: int, partner: int) -> bool:
    """Whether one side does with a value what the other does with more of it."""
    node = alignment.traces[1 - side].nodes[other]
    users = {alignment.traces[side].nodes[user].name for user in alignment.users(side, at)}
    return partner in node.inputs and node.name in users


def _one_run(value: Node, more: Node) -> bool:
    """Whether two values are made by one run of a function: all lines around it are the same."""
    one, other = _whole(site(value)), _whole(site(more))
    if not one or not other or value.around.iterations != more.around.iterations:
        return False
    return (one[0].file, one[0].function, one[1:]) == (other[0].file, other[0].function, other[1:])


def _whole(one: SourceLocation) -> tuple[Frame, ...]:
    return (*one.library, *(frame for frame in one.own if frame not in one.library))


def made_with(
    alignment: Alignment,
    divergence: Divergence,
    files: Sequence[Iterable[str]],
    common: frozenset[Hashable],
) -> Frames | None:
    """Returns who decided a constant that differs, in code that works with the right one elsewhere.

    That is who made the object whose code it is; where a plain function works with it, its caller.

    Args:
        alignment: both programs.
        divergence: where they part.
        files: of the user, a side each.
        common: functions that both sides share.
    """
    ours, theirs = divergence.reference, divergence.candidate
    if ours is None or theirs is None:
        return None
    nodes = [trace.nodes[at] for trace, at in zip(alignment.traces, (ours, theirs), strict=True)]
    unlike = alignment.unlike(ours, theirs)
    if nodes[0].name != nodes[1].name or not unlike:
        return None
    for side in (0, 1):
        operands = [alignment.traces[side].nodes[nodes[side].inputs[at]] for at in unlike]
        if not all(each.literal for each in operands):
            return None
    found: Frames = [
        _decided(alignment, side, at, files[side], common) for side, at in enumerate((ours, theirs))
    ]
    return found if any(found) else None


def _decided(
    alignment: Alignment, side: int, at: int, files: Iterable[str], common: frozenset[Hashable]
) -> Frame | None:
    nodes, own = alignment.traces[side].nodes, site(alignment.traces[side].nodes[at]).own
    right = 0
    for other, node in enumerate(nodes):
        if other == at or node.name != nodes[at].name or node.literal or alignment.matches[side][other] < 0:
            continue
        theirs = site(node).own
        alike = next(
            (deep for deep, pair in enumerate(zip(own, theirs, strict=False)) if pair[0] != pair[1]),
            min(len(own), len(theirs)),
        )
        if alike < len(own):  # the very same lines may be another turn or instance, of which nothing is told
            right = max(right, alike)
    if not right:
        return None
    maker = own[right - 1].function.rpartition(".")[0].rpartition(".")[2]
    return _constructor(maker, files, own) or _not_shared(own[right:], common)


def _constructor(kind: str, files: Iterable[str], own: Sequence[Frame]) -> Frame | None:
    """Returns the line that makes an object of a class, in the class whose code calls the object's."""
    if not kind or kind == "<locals>":
        return None
    callers = [frame.function.partition(".")[0] for frame in own]
    found = [
        (callers.index(made.partition(".")[0]), Frame(file, line, made))
        for file in sorted(files)
        for made, line in _made(file, kind)
        if made.partition(".")[0] in callers and made.partition(".")[0] != kind
    ]
    return min(found, key=lambda each: each[0])[1] if found else None


def _made(file: str, kind: str) -> Iterator[tuple[str, int]]:
    """Gives the methods in a file that make an object of a class, as ``Class.method``, with the line."""
    for outer in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        methods = outer.body if isinstance(outer, ast.ClassDef) else ()
        for method in methods:
            if not isinstance(outer, ast.ClassDef) or not isinstance(method, ast.FunctionDef):
                continue
            for call in ast.walk(method):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == kind:
                    yield f"{outer.name}.{method.name}", call.lineno


def _not_shared(own: Sequence[Frame], common: frozenset[Hashable]) -> Frame | None:
    return next((frame for frame in own if function_of(frame) not in common), None)
