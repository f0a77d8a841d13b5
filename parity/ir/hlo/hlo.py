"""A module of optimised HLO as data: its vocabulary, shapes, instructions and computations."""

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping

from parity.ir.location import Frame, SourceLocation

COLLECTIVES = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "reduce-scatter",
    }
)

CALLS = (
    "calls",
    "to_apply",
    "condition",
    "body",
    "branch_computations",
    "true_computation",
    "false_computation",
    "called_computations",
    "select",
    "scatter",
)

_FLOAT8 = "e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu"

ELEMENT_BITS = {
    "pred": 8,
    "token": 0,
    "opaque": 0,
    "bf16": 16,
    "c64": 64,
    "c128": 128,
    "f4e2m1fn": 4,
    **{f"f8{name}": 8 for name in _FLOAT8.split()},
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The shape of an HLO value.

    Args:
        element: element type such as ``bf16``; ``tuple`` for a tuple.
        sizes: dimensions; -1 if unbounded, the bound if dynamic.
        layout: the text in braces after the dimensions: order, tiles, memory space; may be empty.
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


_NAME = re.compile(r"%?([\w.\-]+)")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s}]+)')


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction.

    Args:
        base: the opcode, such as ``all-gather``, without ``-start``, ``-update`` or ``-done``.
        phase: ``start``, ``update`` or ``done`` of an asynchronous operation, else empty.
        operands: names of the instructions it reads.
        literal: the text in the parentheses of a constant or parameter; else empty.
        line: its line in the text, from 1.
    """

    name: str
    shape: Shape
    base: str
    phase: str
    operands: tuple[str, ...]
    literal: str
    attributes: Mapping[str, str]
    line: int

    @property
    def opcode(self) -> str:
        """The opcode, such as ``all-gather`` or ``all-gather-start``."""
        return f"{self.base}-{self.phase}" if self.phase else self.base

    def called(self) -> tuple[tuple[str, str], ...]:
        """Returns the attribute and name of each computation that the instruction calls."""
        found = []
        for key in CALLS:
            text = self.attributes.get(key)
            if text is not None:
                found += [(key, name) for name in _NAME.findall(text)]
        return tuple(found)

    def metadata(self) -> dict[str, str]:
        """Returns the fields of the metadata attribute, unquoted."""
        text = self.attributes.get("metadata", "")
        fields = ((key, value.removeprefix('"').removesuffix('"')) for key, value in _FIELD.findall(text))
        return {key: value.replace('\\"', '"') for key, value in fields}

    def number(self, name: str, text: str) -> int:
        """Returns the number that the text of one of its settings states."""
        if not (text.isdecimal() and text.isascii() and len(text) <= 18):
            raise ValueError(f"HLO line {self.line}: {name} of {self.name} is {text[:40]!r}, not a number")
        return int(text)

    def backend_config(self) -> dict:
        """Returns the backend's settings; empty if there are none or they are not a JSON object."""
        text = self.attributes.get("backend_config", "")
        if not text.startswith(('{"', "{}")):
            return {}
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"HLO line {self.line}: backend_config of {self.name} is not JSON: {error}"
            ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computation:
    """One computation: instructions in order, each after those that it reads.

    Args:
        root: name of the result.
        attributes: those after the closing brace, such as ``execution_thread``.
    """

    name: str
    instructions: tuple[Instruction, ...]
    root: str
    attributes: Mapping[str, str]

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Parameters by number."""
        return {int(one.literal): one for one in self.instructions if one.opcode == "parameter"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HloModule:
    """A module: computations in order, each after those it calls.

    Args:
        attributes: those of the first line.
        entry: name of the entry computation.
        frames: the innermost line of each numbered stack frame.
    """

    attributes: Mapping[str, str]
    computations: Mapping[str, Computation]
    entry: str
    frames: Mapping[int, Frame]

    def instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """Yields every instruction of every computation once."""
        for computation in self.computations.values():
            for instruction in computation.instructions:
                yield computation, instruction

    def provenance(self, instruction: Instruction, fallback: SourceLocation | None = None) -> SourceLocation:
        """Returns the source of an instruction; ``fallback`` if the compiler made it, so that it has no metadata."""
        fields = instruction.metadata()
        if not fields:
            return fallback or SourceLocation()
        frame = self.frames.get(_number(fields.get("stack_frame_id"))) or Frame(
            fields.get("source_file", ""), _number(fields.get("source_line"))
        )
        return SourceLocation(stack=fields.get("op_name", ""), frames=(frame,) if frame.file else ())


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() and len(text) < 10 else 0
