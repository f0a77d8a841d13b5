"""The channels: each looks at one aspect of a case and answers with a verdict and findings.

One file a channel, which declares a `Channel`; one line in `CHANNELS`, whose order is that of reports and
tables. `sharding` has `axes`, the channels of values have `measure`, budgets have `budgeted`, flavours `attest`
in files of their own. Imports: `compare` and everything below. Gives: `CHANNELS`, and for each `Channel.look`.
"""

from collections.abc import Mapping

from parity.channels import (
    checkpoint,
    collectives,
    dots,
    exact,
    flags,
    gradients,
    inputs,
    loops,
    memory,
    program,
    retrace,
    rng,
    routing,
    sharding,
    speed,
    state,
    tree,
    values,
)
from parity.channels.channel import Aspect, Channel, Need, Settled

__all__ = ["ALL", "CHANNELS", "Aspect", "Channel", "Need", "Settled", "of_aspect"]

CHANNELS: Mapping[str, Channel] = {
    module.CHANNEL.name: module.CHANNEL
    for module in (
        program,
        exact,
        tree,
        inputs,
        rng,
        values,
        gradients,
        state,
        routing,
        dots,
        sharding,
        loops,
        collectives,
        memory,
        speed,
        retrace,
        flags,
        checkpoint,
    )
}
ALL: tuple[str, ...] = tuple(CHANNELS)


def of_aspect(aspect: Aspect) -> tuple[str, ...]:
    """Returns the names of the channels that look at an aspect, in order."""
    return tuple(name for name, channel in CHANNELS.items() if channel.aspect is aspect)
