"""The structure of lowered and compiled programs: loops, collectives, memory, dtypes; and its comparison."""

from parity.structure.anonymous import anonymous_digest, compiled_digest
from parity.structure.budgets import (
    MEMORY_BUDGETS,
    PACKING_BUDGETS,
    Budget,
    budgets_for,
    read_budgets,
)
from parity.structure.collectives import Collective, read_collectives
from parity.structure.compare_collectives import compare_collectives
from parity.structure.compare_dots import compare_dots
from parity.structure.compare_loops import Loops, compare_loops
from parity.structure.compare_memory import compare_memory
from parity.structure.cycles import Cycles, read_cycles
from parity.structure.donation import Alias, Donation, compare_donation, read_donation
from parity.structure.dtypes import SENSITIVE, TypedOp, read_dtypes
from parity.structure.hlo import Computation, HloModule, Instruction
from parity.structure.hlo_parse import parse_hlo
from parity.structure.hlo_shapes import Shape
from parity.structure.lowered import lowered_loops
from parity.structure.memory import QUANTITIES, Memory, read_memory
from parity.structure.model import Leaf, Loop, LoopTree, Place, Provenance
from parity.structure.optimised import optimised_loops, optimised_module
from parity.structure.rows import Row, collective_rows, dtype_rows, loop_rows, memory_rows

__all__ = [
    "MEMORY_BUDGETS",
    "PACKING_BUDGETS",
    "QUANTITIES",
    "SENSITIVE",
    "Alias",
    "Budget",
    "Collective",
    "Computation",
    "Cycles",
    "Donation",
    "HloModule",
    "Instruction",
    "Leaf",
    "Loop",
    "LoopTree",
    "Loops",
    "Memory",
    "Place",
    "Provenance",
    "Row",
    "Shape",
    "TypedOp",
    "anonymous_digest",
    "budgets_for",
    "collective_rows",
    "compare_collectives",
    "compare_donation",
    "compare_dots",
    "compare_loops",
    "compare_memory",
    "compiled_digest",
    "dtype_rows",
    "loop_rows",
    "lowered_loops",
    "memory_rows",
    "optimised_loops",
    "optimised_module",
    "parse_hlo",
    "read_budgets",
    "read_collectives",
    "read_cycles",
    "read_donation",
    "read_dtypes",
    "read_memory",
]
