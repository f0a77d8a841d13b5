"""The channel ``flags``: every declared flag changes both twins' programs in the same way."""

import dataclasses

from parity.builds.weights.map import MapError
from parity.cases.case import Case, Flag
from parity.channels.channel import Aspect, channel
from parity.channels.results import compared
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict


def _flip(case: Case, flag: Flag, session: Session) -> Finding | None:
    """Lowers both sides with and without a flag; returns the problem, None if it changes both in the same way."""
    off, on = case.varied(flag.off) if flag.off else case, case.varied(flag.on)
    left = dataclasses.replace(off, candidate=on.reference)
    right = dataclasses.replace(off, reference=off.candidate, candidate=on.candidate)
    live = tuple(not _same(case, session, strictly=True) for case in (left, right))
    if all(live) and (not _same(off, session) or _same(on, session)):
        return None
    texts = ["changes" if changed else "stays the same program" for changed in live]
    if all(live):
        texts[1] += " (both change, but not into the same program)"
        cause = "the flag means something else on the two sides"
    elif any(live):
        dead = SIDES[live.index(False)]
        cause = f"the {dead} does not honour the flag, or reads it where it has no effect"
    else:
        cause = "no side honours the flag, though it is declared to be live"
    return Finding(
        where=f"flag {flag.name}",
        reference=texts[0],
        candidate=texts[1],
        cause=cause,
        next_step="follow the setting from the config to the code that acts on it",
    )


def _same(case: Case, session: Session, *, strictly: bool = False) -> bool:
    """Returns True if both sides are proved to have the same values, or if strictly: are the same program."""
    try:
        evidence = Evidence.of(case, session)
        return evidence.is_one_program() if strictly else evidence.rung is Verdict.PROVED
    except MapError:
        return False


@channel(
    column="prog",
    aspect=Aspect.CALLS,
    applies=lambda evidence: "" if evidence.case.explore.flags else "the case declares no flags",
)
def flags(evidence: Evidence) -> ChannelResult:
    """Checks that every declared option changes both sides' programs, and in the same way."""
    declared = evidence.case.explore.flags
    findings = [found for flag in declared if (found := _flip(evidence.case, flag, evidence.session))]
    names = ", ".join(flag.name for flag in declared)
    detail = f"{len(declared) - len(findings)} of {len(declared)} flags are live on both sides: {names}"
    return compared(detail, findings)
