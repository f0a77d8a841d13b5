"""The channel ``gradients``: gradients of all parameters under the batch's loss scale."""

from parity.builds.build import Group
from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.measure import measured, zero_gradients
from parity.compare.evidence import Evidence
from parity.values.vacuity import dead_gradients
from parity.verdicts import ChannelResult


@channel(
    column="grad",
    aspect=Aspect.VALUES,
    settled_by_proof=SettledByProof.ALWAYS,
    group=Group.GRADIENTS,
    guard=zero_gradients,
)
def gradients(evidence: Evidence) -> ChannelResult:
    """Compares the gradients of all parameters under a loss scale that is not one."""
    return measured(
        evidence,
        Group.GRADIENTS,
        lambda reference: dead_gradients(reference, evidence.case.accept.zero_gradients),
    )
