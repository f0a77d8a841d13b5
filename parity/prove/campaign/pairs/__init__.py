"""Pairs of small modules written by hand, each with whether the prover must call them the same.

Each pair that must be refused is a trap for one particular mistake in a prover.
"""

from parity.prove.campaign.pairs.attributes import SLOTS, SYMBOLS, TYPES
from parity.prove.campaign.pairs.loops import LOOPS
from parity.prove.campaign.pairs.structure import BARRIERS, CALLS, SHARDINGS
from parity.prove.campaign.pairs.text import Pair
from parity.prove.campaign.pairs.values import CONSTANTS, EFFECTS, ORDER

__all__ = ["PAIRS", "Pair"]

PAIRS: tuple[Pair, ...] = (
    *LOOPS,
    *ORDER,
    *EFFECTS,
    *CONSTANTS,
    *BARRIERS,
    *SHARDINGS,
    *CALLS,
    *SLOTS,
    *SYMBOLS,
    *TYPES,
)
