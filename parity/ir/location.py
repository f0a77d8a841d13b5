"""Source lines and name stack of an operation, for traced, lowered and compiled programs.

JAX traces a called function once and keeps the trace, with the call stack of its first caller. Therefore only the lines
inside the function belong to an operation; the rest comes from the call that leads there (`SourceLocation.called_by`).
"""

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Hashable, Iterator
from pathlib import Path, PurePath
from typing import Any

from parity.ir.functions import Frame, origin, passes_all_on
from parity.ir.jax_internals import equation_scope, equation_traceback, traceback_frames
from parity.ir.jaxprs import bodies, makers, opened, variables
from parity.ir.jaxprs import origin as forwarded_from
from parity.ir.makers import backward_rule, library_call

ENGINE = tuple(
    f"{Path(__file__).parents[1] / package}{os.sep}" for package in ("bisect", "builds", "cases", "compare")
)
TRACED_IN_PLACE = frozenset(
    {"scan", "while", "cond", "shard_map", "remat2", "custom_jvp_call", "custom_vjp_call"}
)
"""Primitives whose bodies are traced at each use; ``jit`` and reductions may reuse an earlier trace."""
MOVES = frozenset({"broadcast_in_dim", "transpose", "reshape", "sharding_constraint"})
STACKING = re.compile(r"^flax/.* in .*(scan|vmap)", re.IGNORECASE)
"""Lines of the transforms of Flax that stack parameters."""
_JITTED = re.compile(r"jit\(([^()]*)\)+$")
_RANDOM = re.compile(
    r"threefry|random_|rng_|jit\(_(?:uniform|bernoulli|normal|gumbel|randint|shuffle|truncated_)"
)
_CONTROL_FLOW = frozenset({"while", "scan", "body", "cond", ""})


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLocation:
    """Source of an operation.

    Args:
        stack: JAX's name stack, outermost first, such as ``jit(step)/jvp()/while/body/dot_general``.
        frames: lines of the call stack, innermost first, without those of JAX.
    """

    stack: str = ""
    frames: tuple[Frame, ...] = ()

    @property
    def frame(self) -> Frame:
        """The innermost line; one without a file if unknown."""
        return self.frames[0] if self.frames else Frame("", 0)

    @property
    def own(self) -> tuple[Frame, ...]:
        """Lines in the user's files, innermost first; without callers that only pass their arguments on."""
        own = [frame for frame in self.frames if not frame.in_library]
        return tuple(frame for at, frame in enumerate(own) if at == 0 or not passes_all_on(frame))

    @property
    def library(self) -> tuple[Frame, ...]:
        """The lines of libraries below the user's innermost line."""
        return tuple(itertools.takewhile(lambda frame: frame.in_library, self.frames))

    @property
    def backward(self) -> bool:
        """True if the operation belongs to a backward pass."""
        return "transpose(" in self.stack

    @property
    def rematted(self) -> bool:
        """True if a checkpoint recomputes the operation."""
        return "rematted_computation" in self.stack

    @property
    def label(self) -> str:
        """``rng`` for random bits, the name of an operation that a backend expanded into a loop, or empty."""
        if _RANDOM.search(self.stack):
            return "rng"
        last = self.stack.rsplit("/", 1)[-1].split(";")[0]
        return "" if last in _CONTROL_FLOW or last.endswith(")") else last

    @property
    def tags(self) -> tuple[str, ...]:
        """Hints that do not depend on the source files, so that they are equal in both twins."""
        words = ("backward" if self.backward else "forward", "rematted" if self.rematted else "", self.label)
        return tuple(filter(None, words))

    def __str__(self) -> str:
        return str(self.frames[0]) if self.frames else self.stack or "unknown place"

    @property
    def summary(self) -> str:
        """Tags, file name and function, such as ``backward, rng, model.py:12 in loss``, the user's if there is one."""
        frame = next(iter((*self.own, *self.frames)), None)
        if frame is None:
            return ", ".join((*self.tags, "unknown source"))
        return ", ".join((*self.tags, str(dataclasses.replace(frame, file=PurePath(frame.file).name))))

    @property
    def own_place(self) -> str:
        """The user's innermost line, with the library's line or backward rule it calls; a library's if it is alone.

        A line of a library that the case may compare goes before one of a framework.
        """
        own, library = self.own, self.library
        if not own:
            return str(self)
        if compared := next((frame for frame in library if frame.may_be_compared), None):
            return f"{own[0]}, through {compared}"
        rule = backward_rule(own[0]) if self.backward and not library else None
        called = (
            f" (through {library[0]})" if library else f", with the backward rule at {rule}" if rule else ""
        )
        return f"{own[0]}{called}"

    def against(self, other: "SourceLocation | None", *, unsure: bool = False) -> str:
        """Returns the place, with the caller or maker that the other side does not share.

        Code that only one side runs may be right where it is, so its caller outside of its class is named, too.

        Args:
            unsure: True if the two places may not correspond.
        """
        place = f"{self.own_place}{self.maker}"
        if other is None or unsure:
            return f"{place}, called at {self._caller}" if self._caller else place
        if found := origin(self.own, other.own):
            return f"{place}, {found.how} at {found.lines[0]}"
        pairs = list(zip(self.own, other.own, strict=False))
        if not pairs or pairs[0][0] != pairs[0][1]:
            return place
        callers = [left for left, right in pairs if left != right]
        return f"{place}, called at {callers[0]}" if callers else place

    @property
    def stacking(self) -> "SourceLocation | None":
        """The user's lines outside of the innermost scan or vmap of Flax; None if there is none."""
        inside = itertools.dropwhile(lambda frame: not STACKING.search(str(frame)), self.frames)
        outside = tuple(frame for frame in inside if not frame.in_library)
        return dataclasses.replace(self, frames=outside) if outside else None

    @property
    def maker(self) -> str:
        """The user's call that made the library's closure, as text; empty if there is none, or it is named anyway."""
        call = library_call(self.library, {frame.file for frame in self.own}, self.own) if self.own else None
        return f", made at {call}" if call and call.function not in self.own[0].function.split(".") else ""

    @property
    def _caller(self) -> Frame | None:
        """The user's innermost line outside of the class, or function, of the place; None for a function on its own."""
        own = [
            (frame.function.partition(".")[0], frame)
            for frame in self.own
            if "<locals>" not in frame.function
        ]
        return next((frame for name, frame in own if name != own[0][0]), None)

    def called_by(self, call: "SourceLocation") -> "SourceLocation":
        """Returns the source of an operation inside a called function, as reached by this call.

        Args:
            call: location of the call; if JAX keeps the trace, its name stack ends with ``jit(NAME)``.
        """
        frames = self.frames
        if jitted := _JITTED.search(call.stack):
            ends = [at for at, frame in enumerate(frames) if frame.function.rpartition(".")[2] == jitted[1]]
            frames = frames[: ends[-1] + 1] if ends else ()
        return SourceLocation(
            stack="/".join(part for part in (call.stack, self.stack) if part),
            frames=(*frames, *(frame for frame in call.frames if frame not in frames)),
        )


def operation_source(operation: Any, call: SourceLocation | None = None) -> SourceLocation:
    """Returns the source of an operation of a StableHLO module.

    Args:
        operation: an operation of a module that is alive, or its location, which outlives the module.
        call: location of the call that leads to the function it is in; None for ``@main``.
    """
    location = getattr(operation, "location", operation)
    while hasattr(location, "locations") and len(location.locations):
        location = location.locations[0]
    stack, below = getattr(location, "name_str", ""), getattr(location, "child_loc", location)
    lines = (frame for frame, _ in itertools.groupby(_frames(below)))
    frames = tuple(itertools.takewhile(lambda frame: not frame.file.startswith(ENGINE), lines))
    own = SourceLocation(stack=stack.rstrip(":"), frames=frames)
    return own if call is None else own.called_by(call)


def inlined_source(op: Any) -> SourceLocation:
    """Returns the source of an operation of an inlined program."""
    return operation_source(op.source, _call_source(op.chain))


def _call_source(chain: Any) -> SourceLocation | None:
    return None if chain is None else operation_source(chain.call, _call_source(chain.parent))


def _frames(location: Any, function: str = "") -> Iterator[Frame]:
    """Yields the lines of an MLIR location, innermost first; a name directly around a line is its function."""
    if hasattr(location, "filename"):
        yield Frame(location.filename, location.start_line, function)
    elif hasattr(location, "child_loc"):
        yield from _frames(location.child_loc, location.name_str)
    elif hasattr(location, "callee"):
        yield from _frames(location.callee)
        yield from _frames(location.caller)
    elif hasattr(location, "locations") and len(location.locations):
        yield from _frames(location.locations[0])


@functools.lru_cache(maxsize=65_536)
def equation_source(equation: Any, calls: tuple[Any, ...] = ()) -> SourceLocation:
    """Returns the source of an equation of a traced program; ``calls`` lead to it, such as `Position.calls`."""
    name, scope = equation.params.get("name", ""), equation_scope(equation)
    own = f"jit({name})" if name else equation.primitive.name
    frames = [Frame(*frame) for frame in traceback_frames(equation_traceback(equation))]
    end = next((at for at, frame in enumerate(frames) if frame.file.startswith(ENGINE)), len(frames))
    found = SourceLocation(stack=f"{scope}/{own}" if scope else own, frames=tuple(frames[:end]))
    return found.called_by(equation_source(calls[-1], calls[:-1])) if calls else found


def result_source(jaxpr: Any, result: Any, calls: tuple[Any, ...] = ()) -> SourceLocation | None:
    """Returns the source of the operation that makes a value; None if it is an argument or a constant.

    A move by a library, such as of the axis of a vmap, gives way to the operation inside that made the moved value.
    """
    made = forwarded_from(jaxpr, result)
    equation = makers(jaxpr).get(made)
    if equation is None:
        return None
    source = equation_source(equation, calls)
    inside = [opened(body) for body in bodies(equation)]
    if len(inside) == 1 and len(inside[0].outvars) == len(equation.outvars):
        inner = inside[0].outvars[equation.outvars.index(made)]
        return result_source(inside[0], inner, (*calls, equation)) or source
    if equation.primitive.name in MOVES and source.library:
        below = result_source(jaxpr, equation.invars[0], calls)
        if below is not None and below.own[-len(source.own) :] == source.own:
            return below
    return source


def call_stacks(jaxpr: Any, outer: tuple[Hashable, ...] = ()) -> Iterator[tuple[Hashable, ...]]:
    """Yields the tracebacks on the call stack of each equation that a result or an effect needs.

    A reused trace counts as one call of its caller.

    ``outer`` is the call stack of the loop or branch whose body it is.
    """
    needed = set(variables(opened(jaxpr).outvars))
    for equation in reversed(opened(jaxpr).eqns):
        if needed.isdisjoint(equation.outvars) and not equation.effects:
            continue
        needed.update(variables(equation.invars))
        stack = (equation_traceback(equation), *outer)
        yield stack
        if equation.primitive.name in TRACED_IN_PLACE:
            for body in bodies(equation):
                yield from call_stacks(body, stack)


def called_frames(jaxpr: Any) -> list[Frame]:
    """Returns the lines on the call stacks of all equations that a result or an effect needs, each once."""
    tracebacks = dict.fromkeys(itertools.chain.from_iterable(call_stacks(jaxpr)))
    return list(dict.fromkeys(Frame(*frame) for one in tracebacks for frame in traceback_frames(one)))
