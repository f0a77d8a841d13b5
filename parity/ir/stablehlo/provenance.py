"""Where operations come from: files, lines, functions and name stacks, from MLIR locations."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from parity.ir.hlo.model import Provenance
from parity.ir.stablehlo.program import Chain, Op

__all__ = ["SourceLocation", "join_names", "locate", "op_place", "short_path"]

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_FRAME = re.compile(rf"{_QUOTED}\({_QUOTED}:(\d+):")
_NAME = re.compile(rf"loc\({_QUOTED}(?!:)")
_JITTED = re.compile(r"jit\(([^()]*)\)$")
_Frame = tuple[str, str, int]
_parsed: dict[str, tuple[str, tuple[_Frame, ...]]] = {}
_PARSED_LIMIT = 200_000
_DEEP = 200


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLocation:
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

    def beside(self, other: "SourceLocation | None") -> str:
        """Returns the place, and where it was called from when that is what tells it from ``other``."""
        pairs = list(zip(self.frames, other.frames, strict=False)) if other else []
        if not pairs or pairs[0][0] != pairs[0][1]:
            return str(self)
        callers = [ours for ours, theirs in pairs if ours != theirs]
        return f"{self}, called at {_frame_text(callers[0])}" if callers else str(self)


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


def op_place(op: Op) -> SourceLocation:
    """Returns where an operation comes from, call sites included."""
    return _place(op.source, op.chain)


def _place(source: Any, chain: Chain | None) -> SourceLocation:
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
    return SourceLocation(file=file, line=line, function=function, stack=path, frames=tuple(own))


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


def join_names(outer: str, inner: str) -> str:
    """Returns the name stack of an operation in a function called at the name stack ``outer``."""
    if not outer or not inner or inner.split("/", 1)[0] == outer.split("/", 1)[0]:
        return inner or outer
    return f"{outer}/{inner}"


def locate(op: Any, caller: Provenance) -> Provenance:
    """Returns where an operation comes from.

    Args:
        op: an operation of the lowered module.
        caller: the call that leads to the function it is in; its source stands in where there is none.
    """
    location, names = op.location, []
    for _ in range(_DEEP):
        kind = type(location).__name__
        if kind == "FileLineColLoc" or hasattr(location, "filename"):
            stack, function = names[0] if names else "", names[-1] if len(names) > 1 else ""
            return Provenance(
                name=join_names(caller.name, stack),
                function=function,
                file=location.filename,
                line=location.start_line,
            )
        if hasattr(location, "name_str"):
            names.append(location.name_str)
            location = location.child_loc
        elif hasattr(location, "callee"):
            location = location.callee
        elif hasattr(location, "locations") and len(location.locations):
            location = location.locations[0]
        else:
            break
    return dataclasses.replace(caller, name=join_names(caller.name, names[0] if names else ""))
