"""The channel ``routing``: the experts that each token chooses; a choice that rounding decides is a tie."""

from parity.builds.build import Group
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.measure import missing_outputs, not_run, ties
from parity.channels.results import compared
from parity.compare.evidence import Evidence
from parity.compare.runs import changed_choices, only_ties
from parity.verdicts import ChannelResult, Verdict


@channel(column="vals", aspect=Aspect.VALUES, settled_by_proof=SettledByProof.ALWAYS, group=Group.ROUTING)
def routing(evidence: Evidence) -> ChannelResult:
    """Compares the experts that each token chooses, and the margins; a choice that rounding decides is a tie."""
    if not evidence.reference.backend.executes:
        return not_run(evidence)
    left, right = (side.traced.out_info.get(Group.ROUTING, {}) for side in evidence.sides)
    if missing := missing_outputs(left, right):
        return compared("outputs differ", missing)
    changed = evidence.read(changed_choices)
    findings = tuple(choice.finding() for choice in changed)
    measures = {"flips": len(findings), "ties": sum(choice.is_tie for choice in changed)}
    verdict, detail = Verdict.EQUAL, "every token chooses alike"
    if evidence.read(only_ties):
        verdict, widest = Verdict.TIE, max(choice.margin for choice in changed)
        detail = (
            f"{ties(evidence)}, margins up to {widest:.3g}; values are compared with routing forced equal"
        )
    elif findings:
        verdict = Verdict.FAILED
        detail = f"{len(findings)} tokens choose otherwise, {measures['ties']} of them at a tie"
    return ChannelResult(verdict=verdict, detail=detail, findings=findings, measures=measures)
