"""Where a value comes from: the lines of the user's own files behind it, and the library's below them."""

import dataclasses
import functools
import linecache
import os
import sysconfig
from pathlib import Path
from typing import Any

from parity.bisect.trace import Node
from parity.jax_internals import equation_frames
from parity.prove.provenance import short_path

__all__ = ["Frame", "Site", "blamed", "site"]

HOUSE = Path(__file__).parents[1]
ENGINE = tuple(f"{HOUSE / room}{os.sep}" for room in ("programs", "comparison", "cases", "bisect"))
LIBRARIES = ("site-packages", sysconfig.get_paths()["stdlib"])


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """A line of a function.

    Args:
        file, line, function: where.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{short_path(self.file)}:{self.line} in {self.function}"

    @property
    def text(self) -> str:
        """The line itself."""
        return linecache.getline(self.file, self.line).strip()


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """What stands on the call stack of an operation, innermost first.

    Args:
        own: lines of the user's own files.
        library: lines of libraries below the first of them.
    """

    own: tuple[Frame, ...]
    library: tuple[Frame, ...] = ()

    def __str__(self) -> str:
        below = f" (through {self.library[0]})" if self.library else ""
        return f"{self.own[0]}{below}" if self.own else str(self.library[0]) if self.library else "no known line"


def site(node: Node) -> Site:
    """Returns where a value comes from.

    JAX keeps the trace of a called library function with the call stack of whoever called it first; of such
    an operation only the lines inside the function are its own, and those of the call are added.

    Args:
        node: a value.
    """
    equations = [*node.around.calls, *([node.equation] if node.equation is not None else [])]
    if not equations and node.around.turns:
        equations = [node.around.turns[-1][0]]
    frames: list[Frame] = []
    for outer, equation in zip([None, *equations], equations, strict=False):
        own = _frames(equation)
        name = outer.params.get("name", "") if outer is not None else None
        inside = own if name is None else _within(own, str(name))
        frames = [*inside, *frames]
    cut = next((at for at, frame in enumerate(frames) if _is_engine(frame)), len(frames))
    frames = frames[:cut]
    first = next((at for at, frame in enumerate(frames) if not _is_library(frame)), len(frames))
    own = tuple(frame for frame in frames if not _is_library(frame))
    return Site(own=own, library=tuple(frames[:first]))


@functools.lru_cache(maxsize=65_536)
def _frames(equation: Any) -> tuple[Frame, ...]:
    return tuple(Frame(*frame) for frame in equation_frames(equation))


def _within(frames: tuple[Frame, ...], name: str) -> tuple[Frame, ...]:
    """Returns the lines up to the function that is called; none where they are another caller's."""
    ends = [at for at, frame in enumerate(frames) if frame.function.rpartition(".")[2] == name]
    return frames[: ends[-1] + 1] if ends else ()


def _is_library(frame: Frame) -> bool:
    return frame.file.startswith("<") or any(part in frame.file for part in LIBRARIES)


def _is_engine(frame: Frame) -> bool:
    return frame.file.startswith(ENGINE)


def blamed(ours: Site | None, theirs: Site | None) -> tuple[Frame | None, Frame | None]:
    """Returns the line of each side that is to blame: the innermost that reads otherwise than the other side's.

    What both sides share, such as a function of a common file, is where they part but not why.

    Args:
        ours, theirs: where an operation comes from on each side; None where a side has none.
    """
    sides = [list(each.own) if each else [] for each in (ours, theirs)]
    while all(sides) and _reads_alike(sides[0][0], sides[1][0]):
        sides = [each[1:] for each in sides]
    first = [each[0] if each else whole.own[0] if whole and whole.own else None
             for each, whole in zip(sides, (ours, theirs), strict=True)]
    return first[0], first[1]


def _reads_alike(left: Frame, right: Frame) -> bool:
    same = left.function == right.function and left.text == right.text
    return same and left.file.rpartition("/")[2] == right.file.rpartition("/")[2]
