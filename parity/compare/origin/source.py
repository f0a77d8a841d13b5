"""Source code of values: lines of the user's files around them."""

from collections.abc import Hashable, Iterable

from parity.compare.origin.trace import Node
from parity.ir.functions import function_of
from parity.ir.location import Frame, SourceLocation, equation_source


def site(node: Node) -> SourceLocation:
    """Returns the source location of a value; for slices and stacks of a loop, that of the loop."""
    calls = node.around.calls if node.equation is None else (*node.around.calls, node.equation)
    return equation_source(calls[-1], calls[:-1]) if calls else SourceLocation()


def functions_around(node: Node) -> tuple[str, ...]:
    """Returns the user's functions on the call stack of a value, innermost first."""
    return tuple(frame.function for frame in site(node).own)


def shared(sites: Iterable[Iterable[SourceLocation]]) -> frozenset[Hashable]:
    """Returns the functions with equal text on both sides; they cannot cause a difference."""
    left, right = ({function_of(frame) for each in side for frame in each.own} for side in sites)
    return frozenset(left & right)


def innermost(frames: Iterable[Frame], common: frozenset[Hashable]) -> Frame | None:
    """Returns the first of some lines, innermost first, in a function that is not common; None if there is none."""
    return next((frame for frame in frames if function_of(frame) not in common), None)
