"""Pairs of small modules written by hand, each with the verdict that the prover must give.

Each pair that must be refused is a trap for one particular mistake in a prover.
"""

from campaigns.prover.pairs.attributes import SLOTS, SYMBOLS, TYPES
from campaigns.prover.pairs.loops import LOOPS
from campaigns.prover.pairs.structure import BARRIERS, CALLS, OPERANDS, SHARDINGS
from campaigns.prover.pairs.text import Pair
from campaigns.prover.pairs.values import CONSTANTS, EFFECTS, ORDER

__all__ = ["PAIRS", "Pair"]

PAIRS: tuple[Pair, ...] = (
    *LOOPS,
    *ORDER,
    *EFFECTS,
    *CONSTANTS,
    *BARRIERS,
    *SHARDINGS,
    *CALLS,
    *OPERANDS,
    *SLOTS,
    *SYMBOLS,
    *TYPES,
)
