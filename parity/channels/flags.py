"""The channel ``flags``: every declared flag changes both twins' programs in the same way."""

import dataclasses

from parity.builds.weights.map import MapError
from parity.cases.case import Case, Flag
from parity.channels.channel import Aspect, Channel, Need
from parity.channels.results import compared
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.verdicts import ChannelResult, Finding

__all__ = ["CHANNEL", "Flipped", "flags", "flip"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flipped:
    """The effect of flipping a flag on both sides.

    Args:
        flag: the flag.
        live: True for each side, (reference, candidate), whose program changed.
        matching: True if the flipped programs are proved equal; None if those before the flip are not.
    """

    flag: Flag
    live: tuple[bool, bool]
    matching: bool | None

    def finding(self) -> Finding | None:
        """Returns the problem; None if the flag is live on both sides and has the same effect."""
        if all(self.live) and self.matching is not False:
            return None
        texts = ["changes" if live else "stays the same program" for live in self.live]
        if all(self.live):
            texts[1] += " (both change, but not into the same program)"
            cause = "the flag means something else on the two sides"
        elif any(self.live):
            dead = "reference" if self.live[1] else "candidate"
            cause = f"the {dead} does not honour the flag, or reads it where it has no effect"
        else:
            cause = "no side honours the flag, though it is declared to be live"
        return Finding(
            where=f"flag {self.flag.name}",
            reference=texts[0],
            candidate=texts[1],
            cause=cause,
            next_step="follow the setting from the config to the code that acts on it",
        )


def flip(case: Case, flag: Flag, bench: Session) -> Flipped:
    """Lowers both sides with and without a flag; nothing is compiled.

    Args:
        case: gives the configuration that is varied.
        flag: one that the case declares.
        bench: keeps lowered programs.

    Raises:
        ValueError: the case has no `with_settings` to vary it.
    """
    if case.explore.with_settings is None:
        raise ValueError(
            f"{case.id}: got flags, expected `with_settings` too, which makes the case with other settings"
        )
    off = case.explore.with_settings(flag.off) if flag.off else case
    on = dataclasses.replace(
        case.explore.with_settings(flag.on).with_placement(backend=off.placement.backend), mesh=off.mesh
    )
    left = dataclasses.replace(off, candidate=on.reference)
    right = dataclasses.replace(off, reference=off.candidate, candidate=on.candidate)
    live = tuple(not _same(case, bench, strictly=True) for case in (left, right))
    return Flipped(
        flag=flag, live=(live[0], live[1]), matching=_same(on, bench) if _same(off, bench) else None
    )


def _same(case: Case, bench: Session, *, strictly: bool = False) -> bool:
    """Returns True if both sides are proved to have the same values, or if strictly: are the same program."""
    try:
        evidence = Evidence.of(case, bench)
        return evidence.is_one_program() if strictly else evidence.proof is not None and evidence.proof.proved
    except MapError:
        return False


def flags(evidence: Evidence) -> ChannelResult:
    """Flips every declared flag on both sides."""
    flipped = [flip(evidence.case, flag, evidence.session) for flag in evidence.case.explore.flags]
    findings = tuple(finding for one in flipped if (finding := one.finding()))
    names = ", ".join(one.flag.name for one in flipped)
    detail = f"{len(flipped) - len(findings)} of {len(flipped)} flags are live on both sides: {names}"
    return compared("flags", detail, findings)


CHANNEL = Channel(
    name="flags",
    about="every declared option changes both sides' programs, and alike",
    column="prog",
    aspect=Aspect.CALLS,
    needs=Need.LOWER,
    judge=flags,
    applies=lambda evidence: "" if evidence.case.explore.flags else "the case declares no flags",
)
