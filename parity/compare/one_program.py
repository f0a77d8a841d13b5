"""Programs that are not shown to be the same, and that the compiler makes the same."""

import collections
from typing import Any

import jax
import numpy as np

from parity.compare.comparison import Comparison
from parity.compare.pairing import pair_positions
from parity.compare.side import Side, SideError
from parity.ir.jax_internals import hoisted_constants, kept_arguments

__all__ = ["compile_to_one"]


def compile_to_one(work: Comparison) -> bool:
    """Whether both sides compile to one program, up to names: on this backend equal bits for all inputs.

    Told from the whole text of both compiled programs, see `parity.ir.hlo.anonymous`: what is made of HLO
    later is made of the same. Arguments and results have to stand at the same places and lie alike.

    Args:
        work: the case; both sides are compiled, where what can be told before does not say no.
    """
    return work.once("one program", lambda: _compile_to_one(work))


def _compile_to_one(work: Comparison) -> bool:
    sides = work.reference, work.candidate
    if (
        jax.process_count() > 1
        or work.case.meshes[0] != work.case.meshes[1]
        or not (work.weights.is_identity and _same_places(work))
        or not _same_constants(*sides)
    ):
        return False
    for side in sides:
        side.begin()
    _ = [side.compiled for side in sides]
    try:
        alike = _counts(sides[0]) == _counts(sides[1])
    except SideError:  # it cannot be read: for the channels of structure to say
        return False
    if not alike or _lies(sides[0]) != _lies(sides[1]):
        return False
    return sides[0].anonymous is not None and sides[0].anonymous == sides[1].anonymous


def _same_places(work: Comparison) -> bool:
    pairing = pair_positions(work.reference, work.candidate, work.weights)
    pairs = [*pairing.arguments, *pairing.results]
    none_alone = not any((*pairing.unmatched, *pairing.alone.arguments, *pairing.alone.results))
    return none_alone and all(ours == theirs for ours, theirs in pairs)


def _same_constants(ours: Side, theirs: Side) -> bool:
    """Whether JAX passes the same arrays as further arguments."""
    values = [[np.asarray(one) for one in hoisted_constants(side.lowered)] for side in (ours, theirs)]
    told = [[(one.dtype, one.shape, one.tobytes()) for one in each] for each in values]
    return told[0] == told[1]


def _counts(side: Side) -> collections.Counter:
    """Returns how often the compiled program has each instruction: cheap, and most programs differ in it."""
    return collections.Counter(f"{one.opcode} {one.shape}" for _, one in side.optimised.instructions())


def _lies(side: Side) -> tuple[list[Any], list[Any]]:
    """Returns how the arguments that the program takes lie, and its results."""
    given, returned = (
        jax.tree.leaves(tree, is_leaf=lambda leaf: leaf is None)
        for tree in (side.compiled.input_shardings, side.compiled.output_shardings)
    )
    return [given[index] for index in kept_arguments(side.lowered)], returned
