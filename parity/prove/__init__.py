"""StableHLO equivalence: proves that two lowered programs are the same program, without running them."""

from parity.ir.stablehlo.liveness import heavy_beside, turns_otherwise
from parity.ir.stablehlo.provenance import Place
from parity.prove.annotations import annotations
from parity.prove.fingerprint import argument_fingerprints, program_fingerprint
from parity.prove.frontier import Frontier, Side
from parity.prove.moved import NOTHING_MOVED, Moved, Moves
from parity.prove.proof import Alone, Proof, is_one_program, prove

__all__ = [
    "NOTHING_MOVED",
    "Alone",
    "Frontier",
    "Moved",
    "Moves",
    "Place",
    "Proof",
    "Side",
    "annotations",
    "argument_fingerprints",
    "heavy_beside",
    "is_one_program",
    "program_fingerprint",
    "prove",
    "turns_otherwise",
]
