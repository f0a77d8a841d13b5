"""The channel ``retrace``: a step that is called again with its own results is not traced again."""

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
    """The result of calling a step twice.

    Args:
        drifted: state leaf -> (type it had, type it comes back with).
        again: functions that the second call traced again although the first had traced them -> the reason.
        altered: Python attribute of the model -> (value before the step, value after it).
    """

    drifted: Mapping[str, tuple[str, str]]
    again: Mapping[str, str]
    altered: Mapping[str, tuple[str, str]]

    @property
    def traces(self) -> int:
        """Number of traces of the step in a training loop, as far as two calls show."""
        return 2 if self.drifted or self.again or self.altered else 1


def _type(leaf: Any) -> str:
    weak = ", weakly typed" if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}{list(leaf.shape)}{weak}"


def call_twice(side: Side, again: Callable[[Side], Mapping[str, str]]) -> Called:
    """Calls a program a second time, with state of the types it returned; nothing is compiled.

    Args:
        side: a program that returns its state.
        again: returns the functions that a second call traces again; called only if the types are stable.
    """
    drifted = _drifted(side)
    return Called(
        drifted=drifted, again={} if drifted else again(side), altered=side.traced.effects.attributes
    )


def traced_twice(side: Side) -> dict[str, str]:
    """Returns the functions that the second of two equal calls traces again, with the reasons.

    The second call is skipped if the first traced nothing that could be traced again, because it takes as long.
    """
    _trace(side, side.function)  # JAX keeps this trace since the side was traced; if not, it is made again
    if not _may_be_traced_again(lambda function, file: function in side.build.former or _is_ours(file)):
        return {}
    with _traced_again() as again:
        _trace(
            side, lambda state, inputs: side.function(state, inputs)
        )  # the functions it calls may be cached, the lambda itself may not
    return again


@contextlib.contextmanager
def _traced_again() -> Iterator[dict[str, str]]:
    """Collects the functions that a block traces although they have been traced before, with the reasons.

    Functions that were never traced before do not count, however often the block traces them: a step makes new
    closures, such as scan bodies, each time it is traced. Functions of JAX do not count either.
    """
    found: dict[str, str] = {}
    before = tracing_keys()
    yield found
    for function, keys in tracing_keys().items():
        known = before.get(function, [])
        if known and len(keys) > len(known):
            parts = [key.parts for key in known]
            found.update((key.name, key_difference(key, known)) for key in keys if key.parts not in parts)


def _may_be_traced_again(left: Callable[[Any, str], bool]) -> bool:
    """Returns True if a second call of a step could trace any traced function again.

    Such a function outlives its trace; a scan body that is made in a step does not. A function of an installed package,
    such as Optax, must also have static arguments: its key holds only the types of its arguments if it has none.

    Args:
        left: returns True if the harness itself passes the function, from the given file, to JAX.
    """

    def found() -> list[Any]:
        return [
            function
            for function, keys in tracing_keys().items()
            if not left(function, keys[0].file)
            and ("site-packages" not in keys[0].file or any(key.static for key in keys))
        ]

    functions = found()
    if functions and all("<locals>" in getattr(one, "__qualname__", "") for one in functions):
        functions.clear()
        gc.collect()  # closures of a finished trace may still be in a reference cycle
        functions = found()
    return bool(functions)


def _is_ours(file: str) -> bool:
    """Returns True for functions of the harness, which wraps all user functions that it passes to JAX."""
    return file.startswith(ENGINE) and not file.startswith(MATRIX)


def _drifted(side: Side) -> dict[str, tuple[str, str]]:
    """Compares the types of state before and after the step, from the existing trace."""
    before = dict(side.build.abstract)
    after = _trace(side, side.function).out_info.get(Group.STATE, {})
    return {
        path: (_of(before, path), _of(after, path))
        for path in sorted({*before, *after})
        if _of(before, path) != _of(after, path)
    }


def _trace(side: Side, function: Callable[..., Any]) -> jax.stages.Traced:
    """Traces a function of the program's arguments with weak types, which a side's own arguments leave out."""
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
    """Checks if the step is traced again when it is called with the state it returned."""
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
    """Calls a side twice; meshes of one kind share the second trace, because a step makes the same functions."""
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
