"""Where operations come from: files, lines, functions and name stacks, from MLIR locations."""

import collections
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity.prove.program import Chain, Op, Region
from parity.prove.reader import read_program

__all__ = ["Place", "SourceFiles", "op_frames", "op_place", "short_path", "source_files"]

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_FRAME = re.compile(rf"{_QUOTED}\({_QUOTED}:(\d+):")
_NAME = re.compile(rf"loc\({_QUOTED}(?!:)")
_JITTED = re.compile(r"jit\(([^()]*)\)$")
_Frame = tuple[str, str, int]
_parsed: dict[str, tuple[str, tuple[_Frame, ...]]] = {}
_PARSED_LIMIT = 200_000
_CONTROL = frozenset({"stablehlo.while", "stablehlo.if", "stablehlo.case", "sdy.manual_computation"})


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an operation comes from.

    Args:
        file: the innermost user file, or an empty string if the location has none.
        line: its line; 0 if unknown.
        function: the function the line is in.
        stack: JAX's name stack, outermost first, such as ``jit(step)/jvp()/while/body/dot_general``.
        frames: all user frames ``(function, file, line)``, innermost first.
    """

    file: str
    line: int
    function: str
    stack: str
    frames: tuple[_Frame, ...]

    def __str__(self) -> str:
        if not self.file:
            return self.stack or "unknown place"
        return _frame_text((self.function, self.file, self.line))

    def beside(self, other: "Place | None") -> str:
        """Returns the place, and where it was called from when that is what tells it from ``other``."""
        pairs = list(zip(self.frames, other.frames, strict=False)) if other else []
        if not pairs or pairs[0][0] != pairs[0][1]:
            return str(self)
        callers = [ours for ours, theirs in pairs if ours != theirs]
        return f"{self}, called at {_frame_text(callers[0])}" if callers else str(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """How many live operations of a program come from each file.

    Args:
        innermost: by the innermost user frame; each operation counts once.
        stack: by all user frames; an operation counts once for each file on its call stack.
        operations: how many live operations there are, with or without a known file.
    """

    innermost: dict[str, int]
    stack: dict[str, int]
    operations: int


def _frame_text(frame: _Frame) -> str:
    function, file, line = frame
    return f"{short_path(file)}:{line} in {function}"


def short_path(file: str) -> str:
    """Returns a path from the working directory or from the installed package it belongs to."""
    _, installed, inside = file.rpartition("site-packages/")
    if installed:
        return inside
    here = f"{Path.cwd()}{os.sep}"
    return file.removeprefix(here)


def source_files(program: Any) -> SourceFiles:
    """Counts the live operations of a program by the files in their locations.

    ``jit`` caches traces, and so do its derivatives, with the locations of whoever traced first: what lies
    inside a called function may name the file of another caller. Such operations count for the place of the
    outermost call, which this very trace made; those of a reducer or scatter combiner do not count at all.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
    """
    innermost: collections.Counter[str] = collections.Counter()
    stack: collections.Counter[str] = collections.Counter()
    total = 0
    for frames in op_frames(program):
        total += 1
        if frames:
            innermost[frames[0][1]] += 1
        stack.update({file for _, file, _ in frames})
    return SourceFiles(innermost=dict(innermost), stack=dict(stack), operations=total)


def op_frames(program: Any) -> Iterator[tuple[_Frame, ...]]:
    """Yields of each live operation the frames ``(function, file, line)`` of its outermost call, innermost first.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
    """
    seen: dict[Any, tuple[_Frame, ...]] = {}
    for op in _placed_ops(read_program(program).body):
        yield _traced_frames(op, seen)


def _traced_frames(op: Op, seen: dict[Any, tuple[_Frame, ...]]) -> tuple[_Frame, ...]:
    """Returns the frames of the outermost call; ``seen`` spares printing a location more than once."""
    source, chain = op.source, op.chain
    while chain is not None:
        source, chain = chain.call, chain.parent
    location = source.location
    frames = seen.get(location.attr)
    if frames is None:
        frames = seen[location.attr] = _parse(location)[1]
    return frames


def op_place(op: Op) -> Place:
    """Returns where an operation comes from, call sites included."""
    return _place(op.source, op.chain)


def _place(source: Any, chain: Chain | None) -> Place:
    name, frames = _parse(source.location)
    names, own = [name], [] if _is_borrowed(frames, chain) else list(frames)
    while chain is not None:
        name, frames = _parse(chain.call.location)
        names.append(name)
        if not _is_borrowed(frames, chain.parent):
            own += [frame for frame in frames if frame not in own]
        chain = chain.parent
    path = "/".join(part.rstrip(":") for part in reversed(names) if part)
    function, file, line = own[0] if own else ("", "", 0)
    return Place(file=file, line=line, function=function, stack=path, frames=tuple(own))


def _is_borrowed(frames: tuple[_Frame, ...], chain: Chain | None) -> bool:
    """Whether frames inside a jitted library function are those of its first caller."""
    if chain is None or not frames:
        return False
    jitted = _JITTED.search(_parse(chain.call.location)[0])
    return jitted is not None and frames[-1][0].rpartition(".")[2] != jitted.group(1)


def _parse(location: Any) -> tuple[str, tuple[_Frame, ...]]:
    text = str(location)
    found = _parsed.get(text)
    if found is None:
        frames = []
        for function, file, line in _FRAME.findall(text):
            if not frames or frames[-1] != (function, file, int(line)):
                frames.append((function, file, int(line)))
        name = _NAME.match(text)
        if len(_parsed) > _PARSED_LIMIT:
            _parsed.clear()
        found = _parsed[text] = (name.group(1) if name else "", tuple(frames))
    return found


def _placed_ops(region: Region) -> Iterator[Op]:
    """Yields live operations whose location is of this trace: outside the combiners of reductions and sorts."""
    for op in region.ops:
        if op.live is not None:
            yield op
            for inner in op.regions if op.form.name in _CONTROL else ():
                yield from _placed_ops(inner)
