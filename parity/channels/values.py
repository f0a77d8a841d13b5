"""The channel ``values``: losses, logits and metrics."""

from parity.channels import guards
from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.channels.measure import measured, nothing_returned
from parity.comparison.comparison import SEED, Comparison
from parity.programs.build import Group
from parity.values.vacuity import constant_leaves
from parity.verdicts import ChannelResult

__all__ = ["CHANNEL"]


def values(work: Comparison) -> ChannelResult:
    """Losses, logits and metrics, on a batch and a state in which nothing is constant."""
    batch = work.builds[0].inputs(SEED)
    return measured(
        work,
        Group.VALUES,
        lambda reference: constant_leaves("batch", batch) + constant_leaves("values", reference),
    )


CHANNEL = Channel(
    name="values",
    about="losses, logits and metrics: the ladder on a batch and a state in which nothing is constant",
    column="vals",
    aspect=Aspect.VALUES,
    needs=Need.RUN,
    judge=values,
    settled=Settled.LOWERED,
    group=Group.VALUES,
    guard=lambda work: nothing_returned(work, Group.VALUES) + guards.idle_values(work),
)
