"""Source locations of values: lines of the user's files, and the library's lines that they call."""

import ast
import functools
import linecache
import textwrap
from collections.abc import Hashable, Iterable

from parity.bisect.trace import Node
from parity.ir.location import Frame, SourceLocation, equation_source

__all__ = [
    "function_of",
    "functions_around",
    "innermost",
    "place_text",
    "shared",
    "site",
]


def site(node: Node) -> SourceLocation:
    """Returns the source location of a value; for slices and stacks of a loop, that of the loop.

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
    return source.own_place if source.frames else "no known line"


def functions_around(node: Node) -> tuple[str, ...]:
    """Returns the user's functions on the call stack of a value, innermost first."""
    return tuple(frame.function for frame in site(node).own)


def shared(sites: Iterable[Iterable[SourceLocation]]) -> frozenset[Hashable]:
    """Returns the functions with equal text on both sides; they cannot cause a difference.

    Args:
        sites: for each side, the source locations of its operations.
    """
    left, right = ({function_of(frame) for each in side for frame in each.own} for side in sites)
    return frozenset(left & right)


def innermost(frames: Iterable[Frame], common: frozenset[Hashable]) -> Frame | None:
    """Returns the innermost line in a function that the other side does not have; None if there is none.

    Args:
        frames: frames of a call stack, innermost first.
        common: from `shared`.
    """
    return next((frame for frame in frames if function_of(frame) not in common), None)


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
    except SyntaxError:  # not Python
        return ()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, functions)
    )
