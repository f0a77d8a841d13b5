"""The channel ``state``: parameters, optimizer, keys, counts and the rest, after the first and the last step."""

from collections.abc import Mapping

import numpy as np

from parity.channels import guards
from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.channels.measure import measured, nothing_returned
from parity.comparison.comparison import Comparison
from parity.programs.build import Group
from parity.programs.tree import Role
from parity.values.vacuity import nothing_moved
from parity.verdicts import ChannelResult, Finding

__all__ = ["CHANNEL"]


def state(work: Comparison) -> ChannelResult:
    """All state after the first and the last step."""

    def guard(after: Mapping[str, np.ndarray]) -> list[Finding]:
        steps = work.reference.program.steps
        last = f"step{steps}/" if steps > 1 else ""
        leaves = work.builds[0].leaves
        before = {
            last + path: array for path, array in work.state.items() if leaves[path].role is Role.PARAMS
        }
        return nothing_moved(before, after, [f"*{glob}" for glob in work.case.zero_gradients])

    return measured(work, Group.STATE, guard)


CHANNEL = Channel(
    name="state",
    about="parameters, optimizer, keys, counts and the rest after the first and the last step",
    column="state",
    aspect=Aspect.VALUES,
    needs=Need.RUN,
    judge=state,
    settled=Settled.LOWERED,
    group=Group.STATE,
    guard=lambda work: nothing_returned(work, Group.STATE) + guards.idle_state(work),
)
