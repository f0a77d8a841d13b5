"""A module of optimised HLO as data."""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping

from parity.ir.hlo.hlo_shapes import Shape
from parity.ir.hlo.hlo_words import ASYNC_SUFFIXES, CALLS
from parity.ir.location import Frame, SourceLocation

__all__ = ["Computation", "HloModule", "Instruction", "Sources"]

_NAME = re.compile(r"%?([\w.\-]+)")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s}]+)')


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction.

    Args:
        name: its name without the percent sign.
        shape: the shape of its result.
        opcode: such as ``all-gather`` or ``all-gather-start``.
        operands: names of the instructions it reads.
        literal: the text in the parentheses of a constant or parameter; else empty.
        attributes: the text of each attribute by key.
        line: its line in the text, from 1.
    """

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...]
    literal: str
    attributes: Mapping[str, str]
    line: int

    @property
    def base(self) -> str:
        """The opcode without ``-start``, ``-update`` or ``-done``."""
        for suffix in ASYNC_SUFFIXES:
            if self.opcode.endswith(suffix):
                return self.opcode[: -len(suffix)]
        return self.opcode

    @property
    def phase(self) -> str:
        """``start``, ``update`` or ``done`` of an asynchronous operation, else empty."""
        return self.opcode[len(self.base) + 1 :]

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
        return {key: _unquote(value) for key, value in _FIELD.findall(text)}

    def backend_config(self) -> dict:
        """Returns the backend's settings; empty if there are none or they are not a JSON object.

        Raises:
            ValueError: the attribute starts like JSON but cannot be parsed.
        """
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
        name: its name without the percent sign.
        instructions: all of them; the last one marked ROOT is the result.
        root: name of the result.
        attributes: those after the closing brace, such as ``execution_thread``.
        line: its line in the text, from 1.
    """

    name: str
    instructions: tuple[Instruction, ...]
    root: str
    attributes: Mapping[str, str]
    line: int

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Parameters by number."""
        return {int(one.literal): one for one in self.instructions if one.opcode == "parameter"}

    @property
    def result(self) -> Instruction:
        """The root instruction."""
        return self.by_name[self.root]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """The source tables at the head of a module: files, functions, places and stack frames by number."""

    files: Mapping[int, str]
    functions: Mapping[int, str]
    places: Mapping[int, tuple[int, int, int]]
    frames: Mapping[int, int]

    def frame(self, number: int) -> tuple[str, str, int] | None:
        """Returns function, file and line of a stack frame's innermost place; None if it is not listed."""
        place = self.places.get(self.frames.get(number, 0))
        if place is None:
            return None
        file, function, line = place
        return self.functions.get(function, ""), self.files.get(file, ""), line


@dataclasses.dataclass(frozen=True, kw_only=True)
class HloModule:
    """A module: computations in order, each after those it calls.

    Args:
        name: the module's name.
        attributes: the text of each attribute of the first line by key.
        computations: by name, callees first.
        entry: name of the entry computation.
        sources: the source tables.
    """

    name: str
    attributes: Mapping[str, str]
    computations: Mapping[str, Computation]
    entry: str
    sources: Sources

    def instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """Yields every instruction of every computation once."""
        for computation in self.computations.values():
            for instruction in computation.instructions:
                yield computation, instruction

    def provenance(self, instruction: Instruction, fallback: SourceLocation | None = None) -> SourceLocation:
        """Returns the source of an instruction.

        Args:
            instruction: one of the module.
            fallback: replaces the source of an instruction without metadata (compiler-made ones have none).
        """
        fields = instruction.metadata()
        if not fields:
            return fallback or SourceLocation()
        number = _number(fields.get("stack_frame_id"))
        frame = self.sources.frame(number) if number else None
        function, file, line = frame or (
            "",
            fields.get("source_file", ""),
            _number(fields.get("source_line")),
        )
        frames = (Frame(file, line, function),) if file else ()
        return SourceLocation(stack=fields.get("op_name", ""), frames=frames)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() and len(text) < 10 else 0


def _unquote(value: str) -> str:
    return value[1:-1].replace('\\"', '"') if value.startswith('"') else value
