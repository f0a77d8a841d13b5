"""The channel ``routing``: the experts that each token chooses; a choice that rounding decides is a tie."""

from parity.builds.build import Group
from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.channels.measure import missing_outputs, not_run, ties
from parity.compare.evidence import Evidence
from parity.compare.runs import changed_choices, only_ties
from parity.verdicts import ChannelResult, Verdict

__all__ = ["CHANNEL"]


def routing(evidence: Evidence) -> ChannelResult:
    """Compares the experts that each token chooses, and the margins; a choice that rounding decides is a tie."""
    if not evidence.reference.backend.executes:
        return not_run("routing", evidence)
    left, right = (side.traced.out_info.get(Group.ROUTING, {}) for side in evidence.sides)
    if set(left) != set(right):
        findings = tuple(missing_outputs(left, right))
        return ChannelResult(
            name="routing", verdict=Verdict.FAILED, detail="outputs differ", findings=findings
        )
    changed = evidence.read(changed_choices)
    findings = tuple(choice.finding() for choice in changed)
    measures = {"flips": len(findings), "ties": sum(choice.is_tie for choice in changed)}
    if not findings:
        return ChannelResult(
            name="routing", verdict=Verdict.EQUAL, detail="every token chooses alike", measures=measures
        )
    if evidence.read(only_ties):
        widest = max(choice.margin for choice in changed)
        detail = (
            f"{ties(evidence)}, margins up to {widest:.3g}; values are compared with routing forced equal"
        )
        return ChannelResult(
            name="routing", verdict=Verdict.TIE, detail=detail, findings=findings, measures=measures
        )
    detail = f"{len(findings)} tokens choose otherwise, {measures['ties']} of them at a tie"
    return ChannelResult(
        name="routing", verdict=Verdict.FAILED, detail=detail, findings=findings, measures=measures
    )


CHANNEL = Channel(
    name="routing",
    about="which experts each token chooses, and by what margin",
    column="vals",
    aspect=Aspect.VALUES,
    needs=Need.RUN,
    judge=routing,
    settled=Settled.LOWERED,
    group=Group.ROUTING,
)
