"""Judges flips: named changes of defaults that pass only when every feature they touch has parity.

Flips, what they demand, budgets, baselines and what was relaxed are data of ``[tool.parity]``; the gate
reads a report and says, cell by cell of feature x mesh x channel, what is ready and what blocks. It imports
reports and what lies below, and gives the command line its verdicts.
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
