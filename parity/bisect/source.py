"""Where a value comes from: the lines of the user's own files behind it, and the library's below them."""

import ast
import collections
import dataclasses
import functools
import itertools
import linecache
import os
import sysconfig
import textwrap
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from parity.bisect.trace import Node
from parity.ir.jax_internals import equation_frames
from parity.ir.stablehlo.provenance import short_path

__all__ = [
    "Calls",
    "Frame",
    "Site",
    "blamed",
    "function_of",
    "functions_around",
    "loop_site",
    "shared",
    "site",
]

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
        return (
            f"{self.own[0]}{below}" if self.own else str(self.library[0]) if self.library else "no known line"
        )


def site(node: Node) -> Site:
    """Returns where a value comes from.

    JAX keeps the trace of a called library function with the call stack of whoever called it first; of such
    an operation only the lines inside the function are its own, and those of the call are added.

    Args:
        node: a value.
    """
    equations = [*node.around.calls, *([node.equation] if node.equation is not None else [])]
    if not equations and node.around.iterations:
        equations = [node.around.iterations[-1][0]]
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


def functions_around(node: Node) -> tuple[str, ...]:
    """Returns the functions of the user's files around what made a value, innermost first."""
    return tuple(frame.function for frame in site(node).own)


def loop_site(equation: Any) -> Site:
    """Returns where a loop comes from."""
    return site(Node("loop", (), None, equation=equation))  # pyright: ignore[reportArgumentType]


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


def shared(sites: Iterable[Iterable[Site]]) -> frozenset[Hashable]:
    """Returns the functions that read the same on both sides: what both share is not why they differ.

    Args:
        sites: of each side, where its operations come from.
    """
    ours, theirs = ({function_of(frame) for each in side for frame in each.own} for side in sites)
    return frozenset(ours & theirs)


def blamed(one: Site | None, common: frozenset[Hashable], *, caller: bool = False) -> Frame | None:
    """Returns the line that is to blame: the innermost in a function that the other side does not have.

    Args:
        one: where an operation comes from; None where there is none.
        common: from `shared`.
        caller: whether it is not that function's class but who calls it, as where a module of the wrong name is.
    """
    own = one.own if one else ()
    rest = [frame for frame in own if function_of(frame) not in common]
    if caller and rest:
        inside = rest[0].function.rpartition(".")[0]
        others = [frame for frame in rest if frame.function.rpartition(".")[0] != inside]
        rest = (others or rest) if inside else rest  # a plain function belongs to no module
    return next(iter(rest), own[0] if own else None)


class Calls:
    """Which lines of which function call which other, as far as the stacks of a program's operations tell.

    Args:
        sites: where its operations come from.
    """

    def __init__(self, sites: Iterable[Site]):
        self._known: set[str] = set()
        self._lines: dict[tuple[str, str], set[tuple[str, int]]] = collections.defaultdict(set)
        for one in sites:
            self._known.update(frame.function for frame in one.own)
            for callee, caller in itertools.pairwise(one.own):
                self._lines[callee.function, caller.function].add((caller.file, caller.line))

    def missing(self, one: Site, other: "Calls", common: frozenset[Hashable]) -> Frame | None:
        """Returns the line of a call that another program makes less often, though it has both functions.

        What is called there is not to blame, as a norm that one side leaves out: who calls it is.

        Args:
            one: a place in this program; its two innermost calls count, as flavours differ further out.
            other: the other program.
            common: from `shared`.
        """
        for callee, caller in itertools.islice(itertools.pairwise(one.own), 2):
            edge = callee.function, caller.function
            if function_of(caller) in common or not other._known.issuperset(edge):
                continue
            if len(other._lines.get(edge, ())) < len(self._lines[edge]):
                return caller
        return None


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
    except SyntaxError:  # not Python, or not there
        return ()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, functions)
    )
