"""The channel ``dots``: types of dots, exponentials, sums and roots, as the source requests them."""

from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.channels.structure.compare_dots import compare_dots
from parity.compare.evidence import Evidence
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.verdicts import ChannelResult

__all__ = ["CHANNEL"]


def dots(evidence: Evidence) -> ChannelResult:
    """Compares types of dots, exponentials, sums and roots, as the source requests them."""
    return compare_dots(read_dtypes(evidence.reference.functions), read_dtypes(evidence.candidate.functions))


CHANNEL = Channel(
    name="dots",
    about="types of dots, exponentials, sums and roots, as the source asks for them",
    column="dots",
    aspect=Aspect.STRUCTURE,
    needs=Need.LOWER,
    judge=dots,
    settled=Settled.LOWERED,
)
