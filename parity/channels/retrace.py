"""The channel ``retrace``: a step that is called again with what it returned is not traced again."""

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from parity.builds.build import Group
from parity.channels.channel import Aspect, Channel, Need
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.side import Side
from parity.ir.jax_internals import key_difference, tracing_keys
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL", "Called", "call_twice", "traced_twice"]

SIDES = ("reference", "candidate")
ENGINE = str(Path(__file__).parents[1])
MATRIX = str(Path(ENGINE, "matrix"))
DRIFTED = (
    "the state comes back with another type, so that the next call traces the step again",
    "cast what is returned, or create the leaf with the type the step gives it",
)
ALTERED = (
    "Python state: a step that is traced once changes it once, and a new value traces the step again",
    "hold it in an nnx.Variable, or set it outside of the step",
)
AGAIN = (
    "a static argument, or something it closes over, that is new in every step",
    "pass it as an array, or make it one object for all steps",
)
"""The cause and the next step of each kind of finding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Called:
    """What calling a step twice showed.

    Args:
        drifted: state leaf -> (type it had, type it comes back with).
        again: functions that were traced in the second call though the first had traced them, and why.
        altered: Python attribute of the model -> (what it was, what the step made of it).
    """

    drifted: Mapping[str, tuple[str, str]]
    again: Mapping[str, str]
    altered: Mapping[str, tuple[str, str]]

    @property
    def traces(self) -> int:
        """How often a training loop traces the step, as far as two calls tell."""
        return 2 if self.drifted or self.again or self.altered else 1


def _type(leaf: Any) -> str:
    weak = ", weakly typed" if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}{list(leaf.shape)}{weak}"


def call_twice(side: Side, again: Callable[[Side], Mapping[str, str]]) -> Called:
    """Calls a program a second time, with state of the types it returned; nothing is compiled.

    Args:
        side: a program that returns its state.
        again: tells which functions a second call traces again; only asked where the types are stable.
    """
    drifted = _drifted(side)
    return Called(
        drifted=drifted, again={} if drifted else again(side), altered=side.traced.effects.attributes
    )


def traced_twice(side: Side) -> dict[str, str]:
    """Returns the functions that the second of two equal calls traces again, and why.

    Where the first has traced nothing that could be traced again there is no second, which takes as long.
    """
    _trace(side, side.function)  # kept by JAX since the side was traced, or else done again
    if not _may_be_traced_again(lambda function, file: function in side.build.former or _is_ours(file)):
        return {}
    with _traced_again() as again:
        _trace(
            side, lambda state, inputs: side.function(state, inputs)
        )  # what it calls may be cached, it may not
    return again


@contextlib.contextmanager
def _traced_again() -> Iterator[dict[str, str]]:
    """Collects the functions that are traced in a block though they have been traced before, and why.

    Functions that were never seen do not count, however often the block traces them then: a step makes closures
    of its own, such as scan bodies, whenever it is traced. Nor do those of JAX.
    """
    found: dict[str, str] = {}
    before = tracing_keys()
    yield found
    for function, keys in tracing_keys().items():
        known = before.get(function, [])
        if known and len(keys) > len(known):
            parts = [key.parts for key in known]
            found.update((key.name, key_difference(key, known)) for key in keys if key.parts not in parts)


def _may_be_traced_again(ours: Callable[[Any, str], bool]) -> bool:
    """Returns whether any function that has been traced could be traced again by a second call of a step.

    It outlives its trace, as a scan body that is made in a step does not. One of an installed package, such as
    Optax's, must have static arguments besides: else the types of its arguments are all that its key holds.

    Args:
        ours: whether a function, from a file, is one that the harness hands to JAX itself.
    """

    def found() -> list[Any]:
        return [
            function
            for function, keys in tracing_keys().items()
            if not ours(function, keys[0].file)
            and ("site-packages" not in keys[0].file or any(key.static for key in keys))
        ]

    functions = found()
    if functions and all("<locals>" in getattr(one, "__qualname__", "") for one in functions):
        functions.clear()
        gc.collect()  # closures of a trace that is over may still hang in a cycle
        functions = found()
    return bool(functions)


def _is_ours(file: str) -> bool:
    """Returns True for functions of the harness, which wraps all of the user's that it passes to JAX."""
    return file.startswith(ENGINE) and not file.startswith(MATRIX)


def _drifted(side: Side) -> dict[str, tuple[str, str]]:
    """Compares what goes in with what comes back; the trace that is there tells."""
    before = dict(side.build.abstract)
    after = _trace(side, side.function).out_info.get(Group.STATE, {})
    return {
        path: (_of(before, path), _of(after, path))
        for path in sorted({*before, *after})
        if _of(before, path) != _of(after, path)
    }


def _trace(side: Side, function: Callable[..., Any]) -> jax.stages.Traced:
    """Traces a function of the program's arguments; a side's own leave weak types out."""
    state, inputs = side.arguments
    weak = {path: leaf for path, leaf in side.build.abstract.items() if getattr(leaf, "weak_type", False)}
    with side.clock.phase(side.build.name, "trace"), side.backend.context(side.mesh):
        return jax.jit(function).trace(state | weak, inputs)


def _of(leaves: Mapping[str, Any], path: str) -> str:
    return _type(leaves[path]) if path in leaves else "no such leaf"


def _applies(evidence: Evidence) -> str:
    sides = evidence.sides
    returned = [set(side.traced.out_info.get(Group.STATE, {})) for side in sides]
    if not any(returned):
        return f"{evidence.case.program} returns no state to call it with again"
    once = all(side.program.steps == 1 for side in sides)
    whole = (set(side.build.abstract) <= paths for side, paths in zip(sides, returned, strict=True))
    if once and not any(whole):
        return f"{evidence.case.program} returns part of its state, and is not called with it again"
    return ""


def retrace(evidence: Evidence) -> ChannelResult:
    """Whether the step is traced again when it is called with the state it returned."""
    sides = evidence.sides
    called = [side.memo.share(_called, evidence.session, side, by=()) for side in sides]
    findings = [finding for index in (0, 1) for finding in _findings(called, index)]
    traces = [f"{one.traces}{'' if one.traces == 1 else ' or more'}" for one in called]
    times = traces[0] if traces[0] == traces[1] else " -> ".join(traces)
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    return ChannelResult(
        name="retrace",
        verdict=verdict,
        detail=f"traces of a training loop: {times}",
        findings=tuple(findings),
    )


def _called(session: Session, side: Side) -> Called:
    """Calls a side twice; a step makes the same functions for each call on all meshes of a kind."""
    same = side.build, side.program.name, bool(side.mesh.axes), side.mesh.mode, side.backend.name
    return call_twice(side, lambda side: session.memo.share(traced_twice, side, by=same))


def _findings(called: list[Called], index: int) -> list[Finding]:
    one, other, side = called[index], called[1 - index], SIDES[index]

    def finding(where: str, words: str, elsewhere: str, cause: str, next_step: str) -> Finding:
        texts: dict[str, Any] = {side: words, SIDES[1 - index]: elsewhere}
        return Finding(where=f"{where} of the {side}", **texts, cause=cause, next_step=next_step)

    return [
        *(
            finding(path, _moved(types), _stable(other, path), *DRIFTED)
            for path, types in one.drifted.items()
        ),
        *(
            finding(
                f"attribute {path}",
                f"{before} before the step, {after} after it",
                "left alone, or another name",
                *ALTERED,
            )
            for path, (before, after) in one.altered.items()
        ),
        *(
            finding(
                name,
                f"traced again in the second call: {why}",
                "traced again" if name in other.again else "traced once",
                *AGAIN,
            )
            for name, why in one.again.items()
        ),
    ]


def _moved(types: tuple[str, str]) -> str:
    return f"takes {types[0]}, returns {types[1]}"


def _stable(other: Called, path: str) -> str:
    return _moved(other.drifted[path]) if path in other.drifted else "stable, or another name"


CHANNEL = Channel(
    name="retrace",
    about="a step that is called again with what it returned is not traced again",
    column="state",
    aspect=Aspect.CALLS,
    needs=Need.TRACE,
    judge=retrace,
    applies=_applies,
)
