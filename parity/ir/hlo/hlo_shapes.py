"""Shapes as HLO text writes them: arrays, tuples, layouts, tiles, memory spaces, dynamic dimensions."""

import dataclasses
import functools
import math
import re

from parity.ir.hlo.hlo_words import ELEMENT_BITS

__all__ = ["Shape", "read_shape"]

_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\[\]{}()]*)\](\{[^{}\n]*\})?")
_SIZE = re.compile(r"(?:<=)?(\d+)|\?")
_GROUP = r"\((?:[^()\n]|\([^()\n]*\))*\)"
_LAYOUT = re.compile(rf"\{{[\d,]*(?::(?:[A-Z#*]*{_GROUP})*)?\}}")
_DEEPEST = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The shape of an HLO value.

    Args:
        element: element type such as ``bf16``; ``tuple`` for a tuple.
        sizes: dimensions; -1 if unbounded, the bound if dynamic.
        layout: the text in braces after the dimensions: order, tiles, memory space; may be empty.
        dynamic: True if some dimension is dynamic.
        parts: the elements of a tuple.
    """

    element: str
    sizes: tuple[int, ...] = ()
    layout: str = ""
    dynamic: bool = False
    parts: tuple["Shape", ...] = ()

    @property
    def leaves(self) -> tuple["Shape", ...]:
        """The arrays of a shape, with tuples flattened."""
        if self.element != "tuple":
            return (self,)
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, without the padding that a tiled layout may add."""
        if self.element == "tuple":
            return sum(part.bytes for part in self.parts)
        return -(-math.prod(max(size, 0) for size in self.sizes) * ELEMENT_BITS[self.element] // 8)

    def __str__(self) -> str:
        if self.element == "tuple":
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.element}[{','.join(map(str, self.sizes))}]"


def read_shape(text: str, start: int) -> tuple[Shape, int]:
    """Reads one shape.

    Args:
        text: HLO text without comments.
        start: position of the shape.

    Returns:
        The shape and the position after it.

    Raises:
        ValueError: there is no shape at that position; the message quotes it.
    """
    return _read(text, start, 0)


def _read(text: str, start: int, depth: int) -> tuple[Shape, int]:
    if depth > _DEEPEST:
        raise ValueError(f"a tuple nested deeper than {_DEEPEST}")
    if text.startswith("(", start):
        return _read_tuple(text, start + 1, depth)
    if text.startswith("b(", start):
        shape, end = _read(text, start + 2, depth + 1)
        if not text.startswith(")", end):
            raise ValueError(f"expected ')' after a buffer shape, got {text[end : end + 20]!r}")
        return shape, end + 1
    match = _ARRAY.match(text, start)
    if not match:
        raise ValueError(f"expected a shape, got {text[start : start + 40]!r}")
    return _array(match.group(1), match.group(2), match.group(3) or ""), match.end()


def _read_tuple(text: str, start: int, depth: int) -> tuple[Shape, int]:
    parts, place = [], start
    while not text.startswith(")", place):
        if parts:
            if not text.startswith(",", place):
                raise ValueError(f"expected ',' or ')' in a tuple shape, got {text[place : place + 20]!r}")
            place += 1
        while text.startswith(" ", place):
            place += 1
        part, place = _read(text, place, depth + 1)
        parts.append(part)
    return Shape("tuple", parts=tuple(parts)), place + 1


@functools.lru_cache(maxsize=4096)
def _array(element: str, sizes: str, layout: str) -> Shape:
    if element not in ELEMENT_BITS:
        raise ValueError(f"unknown element type {element!r}")
    if layout and not _LAYOUT.fullmatch(layout):
        raise ValueError(f"unknown layout {layout!r}")
    words = [word.strip() for word in sizes.split(",")] if sizes.strip() else []
    matches = [_SIZE.fullmatch(word) for word in words]
    if not all(matches):
        raise ValueError(f"unknown dimensions {sizes!r}")
    found = tuple(int(match.group(1)) if match and match.group(1) else -1 for match in matches)
    return Shape(element, found, layout, any(not word.isdigit() for word in words))
