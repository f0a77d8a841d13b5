"""The channels: each compares one aspect of a case and returns a verdict and findings.

Each channel has one file, in which a function of the same name is declared as a `Channel`, and one line in
`CHANNELS`, whose order is that of reports and tables. Helpers have separate files: `axes` for `sharding`, `measure` for
the channels of values, `results` for what several channels share. Imports: `compare` and everything below. Gives:
`CHANNELS`, and for each `Channel.look`.
"""

import importlib
from collections.abc import Mapping

from parity.channels.channel import Aspect, Channel, SettledByProof

__all__ = ["ALL", "CHANNELS", "Aspect", "Channel", "SettledByProof", "of_aspect"]

CHANNELS: Mapping[str, Channel] = {
    name: getattr(importlib.import_module(f"{__name__}.{name}"), name)
    for name in (
        "program",
        "exact",
        "tree",
        "inputs",
        "rng",
        "values",
        "gradients",
        "state",
        "routing",
        "dots",
        "sharding",
        "loops",
        "collectives",
        "memory",
        "speed",
        "retrace",
        "flags",
        "checkpoint",
    )
}
ALL: tuple[str, ...] = tuple(CHANNELS)


def of_aspect(aspect: Aspect) -> tuple[str, ...]:
    """Returns the names of the channels of an aspect, in order."""
    return tuple(name for name, channel in CHANNELS.items() if channel.aspect is aspect)
