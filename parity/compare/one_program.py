"""Programs that are not proved to be the same, but that the compiler makes the same."""

from typing import Any

import jax
import numpy as np

from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.ir.hlo.anonymous import compiled_digest
from parity.ir.jax_internals import compiled_program, hoisted_constants, kept_arguments


def compile_to_one(evidence: Evidence) -> bool:
    """Returns True if both sides compile to one program, up to names: on this backend equal bits for all inputs.

    Compares the whole text of both compiled programs, see `parity.ir.hlo.anonymous`: HLO is all that later stages of
    the compiler read. Arguments and results must have the same positions and placements. Both sides are compiled,
    unless the lowered programs exclude it; `Evidence.read` keeps the result.
    """
    sides = evidence.sides
    if (
        jax.process_count() > 1
        or not evidence.on_one_mesh
        or not evidence.weights.is_identity
        or not (evidence.pairing and evidence.pairing.in_place)
        or not _same_constants(*sides)
    ):
        return False
    made = [side.compiled for side in evidence.compiling()]
    here = [one.runtime_executable() for one in made if isinstance(one, jax.stages.Compiled)]
    lines = {compiled_program(one).count("\n") for one in here}  # which no name changes
    if len(lines) > 1 or _lies(sides[0]) != _lies(sides[1]):
        return False
    left, right = map(compiled_digest, made)
    return left is not None and left == right


def _same_constants(left: Side, right: Side) -> bool:
    """Returns True if JAX passes the same constant arrays as further arguments."""
    values = [[np.asarray(one) for one in hoisted_constants(side.lowered)] for side in (left, right)]
    content = [[(one.dtype, one.shape, one.tobytes()) for one in each] for each in values]
    return content[0] == content[1]


def _lies(side: Side) -> tuple[list[Any], list[Any]]:
    """Returns the shardings of the arguments that the program keeps, and of its results."""
    given, returned = (
        jax.tree.leaves(tree, is_leaf=lambda leaf: leaf is None)
        for tree in (side.compiled.input_shardings, side.compiled.output_shardings)
    )
    return [given[index] for index in kept_arguments(side.lowered)], returned
