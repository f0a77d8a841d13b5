"""Delta debugging: the smallest part of a whole that still fails, in the sense that no element can be left out.

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["ddmin"]

T = TypeVar("T")


def ddmin(whole: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns a 1-minimal part of ``whole`` that fails: without any one of its elements it does not.

    Args:
        whole: elements that fail together.
        fails: whether a part does; what cannot be told does not fail.
    """
    part, pieces = list(whole), 2
    if fails([]):
        return []
    while len(part) > 1:
        size = -(-len(part) // pieces)
        chunks = [part[at : at + size] for at in range(0, len(part), size)]
        smaller = next((chunk for chunk in chunks if pieces > 1 and fails(chunk)), None)
        if smaller is not None:
            part, pieces = smaller, 2
            continue
        rests = [[each for other in chunks if other is not chunk for each in other] for chunk in chunks]
        rest = next((rest for rest in rests if len(chunks) > 2 and fails(rest)), None)
        if rest is not None:
            part, pieces = rest, max(pieces - 1, 2)
        elif pieces >= len(part):
            break
        else:
            pieces = min(len(part), 2 * pieces)
    return part
