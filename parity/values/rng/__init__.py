"""Random draws of traced programs: their keys, and a check that no key is used twice."""

from parity.values.rng.audit import (
    Audited,
    audit,
    compare_draws,
    named_by_leaf,
    repeated_keys,
    unforeseen_draws,
)
from parity.values.rng.demand import Demand
from parity.values.rng.draws import Draw, LoopIndex, Recorder
from parity.values.rng.recipes import LeafProvenance, Recipes

__all__ = [
    "Audited",
    "Demand",
    "Draw",
    "LeafProvenance",
    "LoopIndex",
    "Recipes",
    "Recorder",
    "audit",
    "compare_draws",
    "named_by_leaf",
    "repeated_keys",
    "unforeseen_draws",
]
