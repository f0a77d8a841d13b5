"""Judges flips: named changes of defaults that pass only if every affected feature has parity.

Flips, requirements, budgets, baselines and relaxed settings are data of ``[tool.parity]``. The gate reads a report and
finds the blocking cells of feature x mesh x channel. It imports reports and lower packages; the command line uses it.
"""

from parity.gate.baselines import accept, fallen
from parity.gate.current import with_current_waivers
from parity.gate.flips import Feature, Flip, NoQuestion, Rules
from parity.gate.judge import Cell, Readiness, gate_record, judge
from parity.gate.reading import find_rules, read_rules
from parity.gate.relaxation import Relaxation, relaxed
from parity.gate.table import print_gate

__all__ = [
    "Cell",
    "Feature",
    "Flip",
    "NoQuestion",
    "Readiness",
    "Relaxation",
    "Rules",
    "accept",
    "fallen",
    "find_rules",
    "gate_record",
    "judge",
    "print_gate",
    "read_rules",
    "relaxed",
    "with_current_waivers",
]
