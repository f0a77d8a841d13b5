"""Where a value comes from: the lines of the user's own files behind it, and the library's below them."""

import ast
import collections
import functools
import itertools
import linecache
import textwrap
from collections.abc import Hashable, Iterable

from parity.bisect.trace import Node
from parity.ir.location import Frame, SourceLocation, equation_source

__all__ = [
    "Calls",
    "blamed",
    "function_of",
    "functions_around",
    "place_text",
    "shared",
    "site",
]


def site(node: Node) -> SourceLocation:
    """Returns where a value comes from; of a loop's slices and stacks, where the loop does.

    Args:
        node: a value.
    """
    around = node.around
    if node.equation is not None:
        return equation_source(node.equation, around.calls)
    if around.calls:
        return equation_source(around.calls[-1], around.calls[:-1])
    return equation_source(around.iterations[-1][0]) if around.iterations else SourceLocation()


def place_text(source: SourceLocation) -> str:
    """Returns the user's innermost line, with the library's below it."""
    own, library = source.own, source.library
    if not own:
        return str(library[0]) if library else "no known line"
    return f"{own[0]} (through {library[0]})" if library else str(own[0])


def functions_around(node: Node) -> tuple[str, ...]:
    """Returns the functions of the user's files around what made a value, innermost first."""
    return tuple(frame.function for frame in site(node).own)


def shared(sites: Iterable[Iterable[SourceLocation]]) -> frozenset[Hashable]:
    """Returns the functions that read the same on both sides: what both share is not why they differ.

    Args:
        sites: of each side, where its operations come from.
    """
    ours, theirs = ({function_of(frame) for each in side for frame in each.own} for side in sites)
    return frozenset(ours & theirs)


def blamed(one: SourceLocation | None, common: frozenset[Hashable], *, caller: bool = False) -> Frame | None:
    """Returns the line that is to blame: the innermost in a function that the other side does not have.

    Args:
        one: where an operation comes from; None where there is none.
        common: from `shared`.
        caller: whether it is not that function's class but who calls it, as where a module of the wrong name is.
    """
    own = one.own if one else ()
    rest = [frame for frame in own if function_of(frame) not in common]
    if caller and rest:
        inside = rest[0].function.rpartition(".")[0]
        others = [frame for frame in rest if frame.function.rpartition(".")[0] != inside]
        rest = (others or rest) if inside else rest  # a plain function belongs to no module
    return next(iter(rest), own[0] if own else None)


class Calls:
    """Which lines of which function call which other, as far as the stacks of a program's operations tell.

    Args:
        sites: where its operations come from.
    """

    def __init__(self, sites: Iterable[SourceLocation]):
        self._known: set[str] = set()
        self._lines: dict[tuple[str, str], set[tuple[str, int]]] = collections.defaultdict(set)
        for one in sites:
            self._known.update(frame.function for frame in one.own)
            for callee, caller in itertools.pairwise(one.own):
                self._lines[callee.function, caller.function].add((caller.file, caller.line))

    def missing(self, one: SourceLocation, other: "Calls", common: frozenset[Hashable]) -> Frame | None:
        """Returns the line of a call that another program makes less often, though it has both functions.

        What is called there is not to blame, as a norm that one side leaves out: who calls it is.

        Args:
            one: a place in this program; its two innermost calls count, as flavours differ further out.
            other: the other program.
            common: from `shared`.
        """
        for callee, caller in itertools.islice(itertools.pairwise(one.own), 2):
            edge = callee.function, caller.function
            if function_of(caller) in common or not other._known.issuperset(edge):
                continue
            if len(other._lines.get(edge, ())) < len(self._lines[edge]):
                return caller
        return None


def function_of(frame: Frame) -> tuple[str, str]:
    """Returns the file's name and the text of the innermost function around a line."""
    spans = _spans(frame.file)
    around = [span for span in spans if span[0] <= frame.line <= span[1]]
    first, last = max(around, default=(frame.line, frame.line))
    text = "".join(linecache.getlines(frame.file)[first - 1 : last])
    return frame.file.rpartition("/")[2], textwrap.dedent(text)


@functools.lru_cache(maxsize=1_024)
def _spans(file: str) -> tuple[tuple[int, int], ...]:
    """Returns the first and the last line of each function of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # not Python, or not there
        return ()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, functions)
    )
