"""Random draws of traced programs: which keys they use, and that none is used twice."""

from parity.rng.audit import Audited, audit, compare_draws, repeated_keys, unforeseen_draws
from parity.rng.demand import Demand
from parity.rng.draws import Draw, Recorder, Turn
from parity.rng.initial import ANOTHER_CONSTANT, ANOTHER_KEY, compare_initial, named_by_leaf
from parity.rng.recipes import Recipe, Recipes

__all__ = [
    "ANOTHER_CONSTANT",
    "ANOTHER_KEY",
    "Audited",
    "Demand",
    "Draw",
    "Recipe",
    "Recipes",
    "Recorder",
    "Turn",
    "audit",
    "compare_draws",
    "compare_initial",
    "named_by_leaf",
    "repeated_keys",
    "unforeseen_draws",
]
