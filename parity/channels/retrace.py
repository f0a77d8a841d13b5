"""The channel ``retrace``: a step that is called again with what it returned is not traced again."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from parity.channels.channel import Aspect, Channel, Need
from parity.comparison.comparison import Comparison
from parity.comparison.side import Side
from parity.jax_internals import traced_again
from parity.programs.build import Group
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL", "Called", "call_twice"]

SIDES = ("reference", "candidate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Called:
    """What calling a step twice showed.

    Args:
        drifted: state leaf -> (type it had, type it comes back with).
        again: functions that were traced in the second call though the first had traced them, and why.
    """

    drifted: Mapping[str, tuple[str, str]]
    again: Mapping[str, str]

    @property
    def traces(self) -> int:
        """How often a training loop traces the step, as far as two calls tell."""
        return 2 if self.drifted or self.again else 1


def _type(leaf: Any) -> str:
    weak = ", weakly typed" if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}{list(leaf.shape)}{weak}"


def call_twice(side: Side) -> Called:
    """Calls a program a second time, with state of the types it returned; nothing is compiled.

    Args:
        side: a program that returns its state.
    """
    before = dict(side.build.abstract)
    weak = {path: leaf for path, leaf in before.items() if getattr(leaf, "weak_type", False)}
    state = {**side.arguments[0], **weak}  # a side's own arguments leave weak types out
    jax.clear_caches()  # for each miss JAX walks through all that it has traced: after many cases, for minutes
    after = _trace(side, state).out_info.get(Group.STATE, {})
    drifted = {
        path: (_of(before, path), _of(after, path))
        for path in sorted({*before, *after})
        if _of(before, path) != _of(after, path)
    }
    if drifted:
        return Called(drifted=drifted, again={})
    with traced_again() as again:
        _trace(side, state)
    return Called(drifted={}, again=dict(again))


def _trace(side: Side, state: Mapping[str, Any]) -> jax.stages.Traced:
    """Traces the program under a function of its own: what it calls may be cached, it may not."""
    function = side.program.function
    called = jax.jit(lambda state, inputs: function(state, inputs))
    with side.clock.phase(side.build.name, "trace"), side.backend.context(side.mesh):
        return called.trace(dict(state), side.arguments[1])


def _of(leaves: Mapping[str, Any], path: str) -> str:
    return _type(leaves[path]) if path in leaves else "no such leaf"


def _applies(work: Comparison) -> str:
    if any(side.traced.out_info.get(Group.STATE) for side in (work.reference, work.candidate)):
        return ""
    return f"{work.case.program} returns no state to call it with again"


def retrace(work: Comparison) -> ChannelResult:
    """Whether the step is traced again when it is called with the state it returned."""
    sides = (work.reference, work.candidate)
    called = [work.remember(("twice", *side.identity), lambda side=side: call_twice(side)) for side in sides]
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


def _findings(called: list[Called], index: int) -> list[Finding]:
    one, other, side = called[index], called[1 - index], SIDES[index]
    found = []
    for path, (before, after) in one.drifted.items():
        words: dict[str, Any] = {
            SIDES[1 - index]: _stable(other, path),
            side: f"takes {before}, returns {after}",
        }
        found.append(
            Finding(
                where=f"{path} of the {side}",
                **words,
                cause="the state comes back with another type, so that the next call traces the step again",
                next_step="cast what is returned, or create the leaf with the type the step gives it",
            )
        )
    for name, why in one.again.items():
        words: dict[str, Any] = {SIDES[1 - index]: "traced again" if name in other.again else "traced once"}
        found.append(
            Finding(
                where=f"{name} of the {side}",
                **{**words, side: f"traced again in the second call: {why}"},
                cause="a static argument, or something it closes over, that is new in every step",
                next_step="pass it as an array, or make it one object for all steps",
            )
        )
    return found


def _stable(other: Called, path: str) -> str:
    if path not in other.drifted:
        return "stable, or another name"
    before, after = other.drifted[path]
    return f"takes {before}, returns {after}"


CHANNEL = Channel(
    name="retrace",
    about="a step that is called again with what it returned is not traced again",
    column="state",
    aspect=Aspect.CALLS,
    needs=Need.TRACE,
    judge=retrace,
    applies=_applies,
)
