"""The channel ``exact``: a proof that both sides are equal in exact real arithmetic, if a case requests it."""

from parity.channels.channel import Aspect, channel
from parity.compare.evidence import Evidence
from parity.verdicts import ChannelResult, Verdict


@channel(
    column="prog",
    aspect=Aspect.PROGRAM,
    applies=lambda evidence: (
        "" if evidence.case.accept.prove_exact else "the case asks for no proof in exact arithmetic"
    ),
)
def exact(evidence: Evidence) -> ChannelResult:
    """Proves both sides equal in exact real arithmetic, if the case requests it.

    The channels of values cover rounding and overflow.
    """
    from parity.compare.exactness import difference  # most cases start faster without it

    found = evidence.exact_proof
    assumed = f", if {' and '.join(found.assumptions)}" if found.assumptions else ""
    return ChannelResult(
        verdict=Verdict.EQUAL if found.proved else Verdict.FAILED,
        detail=f"equal in exact arithmetic{assumed}" if found.proved else "not proved in exact arithmetic",
        findings=() if found.proved else (difference(found),),
        measures={"terms": found.terms, "steps": found.steps, "seconds": found.seconds},
    )
