"""The channel ``speed``: time to compile and to run a step, candidate over reference, measured alternately."""

import functools
from collections.abc import Callable, Mapping, Sequence

from parity.cases.accepted import Budget, budgets_for
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.results import compared
from parity.compare.evidence import Evidence
from parity.compare.timing.rounds import Paired, compile_seconds, paired, steps
from parity.verdicts import SIDES, ChannelResult, Finding

MEASURES: Mapping[str, Callable[[Evidence], Sequence[Callable[[], float]]]] = {
    "compile": lambda evidence: [functools.partial(compile_seconds, side) for side in evidence.sides],
    "step": lambda evidence: steps(evidence.sides, (evidence.state, evidence.candidate_state)),
}


def _not_asked(evidence: Evidence) -> str:
    if not budgets_for("speed", evidence.case.accept.budgets):
        return "no budget says how much slower it may be"
    if not evidence.reference.backend.executes:
        return f"{evidence.reference.backend.name} runs nothing, and compiles in workers of its own"
    return ""


@channel(column="mem", aspect=Aspect.STRUCTURE, settled_by_proof=SettledByProof.ALWAYS, applies=_not_asked)
def speed(evidence: Evidence) -> ChannelResult:
    """Compares the time to compile and to run a step, measured alternately, if it is budgeted."""
    budgets = budgets_for("speed", evidence.case.accept.budgets)
    with evidence.session.clock.phase("both sides", "execute"):
        found = {name: paired(MEASURES[name](evidence)) for name in MEASURES if name in budgets}
    findings = [
        _finding(name, times, budgets[name])
        for name, times in found.items()
        if times.low > budgets[name].ratio  # slack is in bytes or counts, and does not apply to a ratio
    ]
    words = [
        f"{name} {times.middle:.2f} x, budget {budgets[name].sentence()}" for name, times in found.items()
    ]
    return compared(
        "; ".join(words),
        findings,
        measures={f"{name}_ratio": times.middle for name, times in found.items()},
        tables={"speed": [_row(name, times) for name, times in found.items()]},
    )


def _row(name: str, times: Paired) -> dict[str, str | float]:
    sides = {f"{side}_seconds": value for side, value in zip(SIDES, times.medians, strict=True)}
    return {"quantity": name, **sides, "ratio": times.middle, "low": times.low, "rounds": len(times.ratios)}


def _finding(name: str, times: Paired, budget: Budget) -> Finding:
    left, right = (f"{value * 1e3:,.2f} ms" for value in times.medians)
    spread = f"{times.ratios.min():.2f} to {times.ratios.max():.2f} in {len(times.ratios)} rounds"
    return Finding(
        where=f"time to {name}",
        reference=left,
        candidate=right,
        distance=f"{times.middle:.2f} x ({spread}), budget {budget.sentence()}",
        next_step=f"mend it, or raise budgets.speed.{name} with a reason",
    )
