"""One cheap run of a proved program on ordinary data: a proof holds for programs that return NaN alone, too."""

from collections.abc import Mapping

import jax
import numpy as np

from parity.builds.tree import to_host
from parity.compare.comparison import SEED, Comparison
from parity.compare.memory_check import state_bytes
from parity.compare.session import AS_WRITTEN
from parity.compare.side import Side

__all__ = ["nan_outputs", "why_not_sampled"]

MOST_OPERATIONS = 500
"""Compiling so many without optimisation takes up to half a second."""
MOST_BYTES = 2**26
"""Of the state, and of all that a run holds."""

Paths = set[tuple[str, str]]


def why_not_sampled(work: Comparison) -> str:
    """Returns why the reference of a proved case does not run on ordinary data; empty if it does.

    Args:
        work: the case.
    """
    return work.once("why not sampled", lambda: _why_not(work.reference)) or _sampled(work)[1]


def nan_outputs(work: Comparison) -> Paths:
    """Returns group and path of the reference's outputs that hold nothing but NaN.

    They do on a random state and on the initial one, on two batches: a state that is moved may leave what the model
    is defined on.

    Args:
        work: the case.
    """
    return set() if why_not_sampled(work) else _sampled(work)[0]


def _why_not(side: Side) -> str:
    if not side.backend.executes:
        return f"{side.backend.name} runs nothing"
    if side.mesh.size > 1 or jax.process_count() > 1:
        return "several devices, for each of which it would be compiled"
    if side.operations.operations > MOST_OPERATIONS:
        return f"{side.operations.operations:,} operations, more than {MOST_OPERATIONS:,}"
    return "" if state_bytes(side.build) <= MOST_BYTES else f"a state of more than {MOST_BYTES:,} bytes"


def _sampled(work: Comparison) -> tuple[Paths, str]:
    """Returns the outputs that are NaN, or why there was no run after all."""
    side = work.reference

    def sample() -> tuple[Paths, str]:
        with side.clock.phase(side.build.name, "compile"), side.backend.context(side.mesh):
            compiled = side.lowered.compile(compiler_options=AS_WRITTEN)
        needed = compiled.memory_analysis()
        if needed and needed.temp_size_in_bytes + needed.output_size_in_bytes > MOST_BYTES:
            return set(), f"a run takes more than {MOST_BYTES:,} bytes"
        found = _nan(side, compiled, work.state, SEED)
        if found:
            initial = work.case.arrange(work.bench.fresh(side.build, SEED))
            found &= _nan(side, compiled, initial, SEED + 1)
        return found, ""

    return work.once("sampled", sample)


def _nan(side: Side, compiled: jax.stages.Compiled, state: Mapping[str, np.ndarray], seed: int) -> Paths:
    with side.clock.phase(side.build.name, "execute"), side.backend.context(side.mesh):
        outputs = compiled(side.placed(state), side.placed_inputs(side.build.inputs(seed)))
        host = {str(group): to_host(leaves) for group, leaves in outputs.items()}
    return {
        (group, path)
        for group, leaves in host.items()
        for path, array in leaves.items()
        if array.size and (array != array).all()
    }
