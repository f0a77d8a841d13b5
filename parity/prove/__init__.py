"""StableHLO equivalence: proves that two lowered programs are the same program, without running them."""

from parity.ir.stablehlo.liveness import has_extra_loops, loop_counts_differ
from parity.prove.fingerprint import argument_fingerprints
from parity.prove.frontier import Frontier, FrontierSide
from parity.prove.proof import Proof, UnpairedPositions, is_one_program, prove
from parity.prove.rules.weight_views import WeightView

__all__ = [
    "Frontier",
    "FrontierSide",
    "Proof",
    "UnpairedPositions",
    "WeightView",
    "argument_fingerprints",
    "has_extra_loops",
    "is_one_program",
    "loop_counts_differ",
    "prove",
]
