"""The channel ``retrace``: a step that is called again with its own results is not traced again."""

import gc
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from parity.builds.build import Group
from parity.channels.channel import Aspect, channel
from parity.channels.results import compared, span
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.side import Side
from parity.ir.functions import ENGINE
from parity.ir.jax_internals import TracingKey, key_difference, tracing_keys
from parity.ir.location import result_source
from parity.verdicts import SIDES, ChannelResult, Doubt, Finding, one_sided

MATRIX = f"{ENGINE}matrix"
Kind = tuple[str, str, str, str]
"""A kind of finding: begin of its place, text of a side without it, cause, next step."""
DRIFTED: Kind = (
    "",
    "stable, or another name",
    "the state comes back with another type, so that the next call traces the step again",
    "cast what is returned, or create the leaf with the type the step gives it",
)
ALTERED: Kind = (
    "attribute ",
    "left alone, or another name",
    "Python state: a step that is traced once changes it once, and a new value traces the step again",
    "hold it in an nnx.Variable, or set it outside of the step",
)
AGAIN: Kind = (
    "",
    "traced once",
    "a static argument, or something it closes over, that is new in every step",
    "pass it as an array, or make it one object for all steps",
)
ONLY_WEAK = re.compile(r"takes (\S+\[[\d, ]*\])(, weakly typed)?, returns \1(?![^,])")
"""The text of a leaf whose type is only weak on one end: no number differs."""
WEAK = ", weakly typed"
Called = Mapping[Kind, Mapping[str, str]]
"""The result of calling a step twice: findings by kind, and by name of the leaf, attribute or function."""


def _type(leaf: Any) -> str:
    if leaf is None:
        return "no such leaf"
    weak = WEAK if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}{list(leaf.shape)}{weak}"


def _traced_again(side: Side) -> dict[str, str]:
    """Returns the functions that the second of two equal calls traces again, with the reasons.

    The second call is skipped if the first traced nothing that could be traced again, because it takes as long.
    Functions that were never traced before do not count, however often a call traces them: a step makes new closures,
    such as scan bodies, each time it is traced. Functions of JAX do not count either.
    """
    _trace(side, side.function)  # JAX keeps this trace since the side was traced; if not, it is made again
    if not (before := _keys_if_traced_again(side)):
        return {}
    # The functions that it calls may be cached, the lambda itself may not.
    _trace(side, lambda state, inputs: side.function(state, inputs))
    found: dict[str, str] = {}
    for function, keys in tracing_keys().items():
        known = before.get(function, [])
        if known and len(keys) > len(known):
            parts = [key.parts for key in known]
            why = ((key.name, key_difference(key, known)) for key in keys if key.parts not in parts)
            found.update((name, f"traced again in the second call: {each}") for name, each in why)
    return found


def _keys_if_traced_again(side: Side) -> dict[Any, list[TracingKey]]:
    """Returns all tracing keys if a second call of a step could trace any traced function again, else none.

    Such a function outlives its trace; a scan body that is made in a step does not. It is not of the harness, which
    wraps all user functions that it passes to JAX. A function of an installed package, such as Optax, must also have
    static arguments: its key holds only the types of its arguments if it has none.
    """

    def found() -> list[Any]:
        return [
            function
            for function, keys in before.items()
            if weakref.ref(function) not in side.build.former
            and (not keys[0].file.startswith(ENGINE) or keys[0].file.startswith(MATRIX))
            and ("site-packages" not in keys[0].file or any(key.static for key in keys))
        ]

    before = tracing_keys()
    functions = found()
    for generation in (1, 2):  # young objects first, because a full collection takes a second
        if functions and all("<locals>" in getattr(one, "__qualname__", "") for one in functions):
            functions.clear()
            before.clear()
            gc.collect(generation)  # closures of a finished trace may still be in a reference cycle
            before = tracing_keys()
            functions = found()
    return before if functions else {}


def _drifted(session: Session, side: Side) -> dict[str, str]:
    """Returns the leaves whose type the step changes, from the existing trace."""
    before = side.build.abstract
    after = _trace(side, side.function).out_info.get(Group.STATE, {})
    types = {path: (_type(before.get(path)), _type(after.get(path))) for path in sorted({*before, *after})}
    return {
        path: f"takes {old}, returns {new}{_made(session, side, path, old == new + WEAK)}"
        for path, (old, new) in types.items()
        if old != new
    }


def _made(session: Session, side: Side, path: str, was_weak: bool) -> str:
    """Returns the user's line that creates a leaf whose weak type is lost, or makes the returned one, as text."""
    result, program = (str(Group.STATE), path), side.traced.jaxpr.jaxpr
    created = session.start(side.build).source(path) if was_weak else None
    if created and created.own:
        return f", created at {created.own[0]}"
    if result not in side.results:
        return ""
    source = result_source(program, program.outvars[side.results.index(result)])
    return f", made at {source.own[0]}" if source and source.own else ""


def _trace(side: Side, function: Callable[..., Any]) -> jax.stages.Traced:
    """Traces a function of the program's arguments with weak types, which a side's own arguments leave out."""
    state, inputs = side.arguments
    weak = {path: leaf for path, leaf in side.build.abstract.items() if getattr(leaf, "weak_type", False)}
    with side.clock.phase(side.build.name, "trace"), side.backend.context(side.mesh):
        return jax.jit(function).trace(state | weak, inputs)


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


@channel(column="state", aspect=Aspect.CALLS, applies=_applies)
def retrace(evidence: Evidence) -> ChannelResult:
    """Checks that a step is not traced again if it is called with the state it returned."""
    sides = evidence.sides
    called = [side.memo.share(_called, evidence.session, side, by=()) for side in sides]
    findings = [finding for index in (0, 1) for finding in _findings(called, index)]
    traces = span(*("2 or more" if any(one.values()) else "1" for one in called))
    return compared(f"traces of a training loop: {traces}", findings)


def _called(session: Session, side: Side) -> Called:
    """Calls a program a second time, with state of the types it returned; nothing is compiled.

    Meshes of one kind share the second trace, because a step makes the same functions. It is left out if the types are
    not stable.
    """
    same = side.build, side.program.name, bool(side.mesh.axes), side.mesh.mode, side.backend.name
    drifted = _drifted(session, side)
    again = {} if drifted else session.memo.share(_traced_again, side, by=same)
    altered = {
        name: f"{before} before the step, {after} after it"
        for name, (before, after) in side.effects.attributes.items()
    }
    return {DRIFTED: drifted, ALTERED: altered, AGAIN: again}


def _findings(called: list[Called], index: int) -> Iterator[Finding]:
    one, other, side = called[index], called[1 - index], SIDES[index]
    for kind, found in one.items():
        begin, absent, cause, next_step = kind
        for name, text in found.items():
            texts = one_sided(side, text, other[kind].get(name, absent))
            doubts = (Doubt.HARMLESS,) if kind is AGAIN or ONLY_WEAK.match(text) else ()
            where = f"{begin}{name} of the {side}"
            yield Finding(where=where, **texts, cause=cause, next_step=next_step, doubts=doubts)
