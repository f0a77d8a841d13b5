"""Source code of values: lines of the user's files around them, and the calls that made the objects they call."""

import ast
from collections.abc import Hashable, Iterable, Iterator, Sequence

from parity.compare.origin.trace import Node
from parity.ir.functions import function_of, parsed
from parity.ir.location import Frame, SourceLocation, equation_source

__all__ = ["constructor_call", "functions_around", "innermost", "place_text", "shared", "site"]


def site(node: Node) -> SourceLocation:
    """Returns the source location of a value; for slices and stacks of a loop, that of the loop.

    Args:
        node: a value.
    """
    calls = node.around.calls if node.equation is None else (*node.around.calls, node.equation)
    return equation_source(calls[-1], calls[:-1]) if calls else SourceLocation()


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


def constructor_call(kind: str, files: Iterable[str], own: Sequence[Frame]) -> Frame | None:
    """Returns the line that makes an object of a class, in a class whose code calls the object; None if there is none.

    Args:
        kind: name of the object's class.
        files: the user's files.
        own: the user's lines around the object's code, innermost first.
    """
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
    """Yields the methods in a file that make an object of a class, as ``Class.method``, with the line."""
    classes = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef)]
    methods = [(outer, each) for outer in classes for each in outer.body if isinstance(each, ast.FunctionDef)]
    for outer, method in methods:
        for call in ast.walk(method):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == kind:
                yield f"{outer.name}.{method.name}", call.lineno
