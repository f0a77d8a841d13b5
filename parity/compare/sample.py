"""One cheap run of a proved program on ordinary data, because a proof also holds for programs that compute nothing."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.build import SEED, Group
from parity.builds.tree import to_host
from parity.cases.case import Case
from parity.compare.backends.backend import UNOPTIMISED
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.compare.start import state_bytes
from parity.values.vacuity import constant_leaves, dead_gradients, not_finite
from parity.verdicts import Finding

MOST_OPERATIONS = 500
"""Maximum number of operations; compiling so many without optimisation takes up to half a second."""
MOST_BYTES = 2**26
"""Maximum number of bytes of the state, and of the temporaries and outputs of a run."""

Flat = Mapping[str, np.ndarray]
Idle = list[tuple[Group, Finding]]


def why_not_sampled(evidence: Evidence) -> str:
    """Returns why the reference of a proved case does not run on ordinary data; empty if it does."""
    return evidence.reference.read(_why_not) or evidence.read(_sampled)[1]


def idle_outputs(evidence: Evidence, group: Group) -> list[Finding]:
    """Finds float outputs of the reference that are not finite or hold a single number, and gradients of zeros.

    A finding must occur on a random state and on the initial one, on two batches. A random state may be outside the
    model's domain, and a layer may start at zero.
    """
    return (
        []
        if why_not_sampled(evidence)
        else [one for where, one in evidence.read(_sampled)[0] if where == group]
    )


def _why_not(side: Side) -> str:
    if not side.backend.executes:
        return f"{side.backend.name} runs nothing"
    if side.mesh.size > 1 or jax.process_count() > 1:
        return "several devices, for each of which it would be compiled"
    if side.operations.size > MOST_OPERATIONS:
        return f"{side.operations.size:,} operations, more than {MOST_OPERATIONS:,}"
    return "" if state_bytes(side.build) <= MOST_BYTES else f"a state of more than {MOST_BYTES:,} bytes"


def _sampled(evidence: Evidence) -> tuple[Idle, str]:
    """Returns the findings common to both batches and states, or the reason why there was no run."""
    side = evidence.reference
    with side.clock.phase(side.build.name, "compile"), side.backend.context(side.mesh):
        compiled = side.lowered.compile(compiler_options=UNOPTIMISED)
    needed = compiled.memory_analysis()
    if needed and needed.temp_size_in_bytes + needed.output_size_in_bytes > MOST_BYTES:
        return [], f"a run takes more than {MOST_BYTES:,} bytes"
    found = _idle(evidence, compiled, evidence.state, SEED)
    if found:
        initial = evidence.case.prepare_state(evidence.session.fresh(side.build, SEED))
        again = _idle(evidence, compiled, initial, SEED + 1)
        found = [one for one in found if one in again]
    return found, ""


def _idle(evidence: Evidence, compiled: jax.stages.Compiled, state: Flat, seed: int) -> Idle:
    side = evidence.reference
    with side.clock.phase(side.build.name, "execute"), side.backend.context(side.mesh):
        outputs = compiled(side.placed(state), side.placed_inputs(side.build.inputs(seed)))
        host = {Group(group): to_host(leaves) for group, leaves in outputs.items()}
    return [
        (group, finding)
        for group, leaves in host.items()
        for finding in _findings(evidence.case, group, leaves, state if group == Group.STATE else {})
    ]


def _findings(case: Case, group: Group, leaves: Flat, before: Flat) -> list[Finding]:
    """Finds reasons why a measured case on the same data would be vacuous, and no others.

    An output with some finite entries is compared in these; a state that was infinite before, such as the best loss so
    far, may stay infinite.
    """
    floats = {
        path: array
        for path, array in leaves.items()
        if array.size and jnp.issubdtype(array.dtype, jnp.inexact)
    }
    lost = {path: array for path, array in floats.items() if not np.isfinite(array).any()}
    numbers = {path: array for path, array in floats.items() if path not in lost}
    moved = {
        path: array
        for path, array in lost.items()
        if path not in before or array.tobytes() != before[path].tobytes()
    }
    found = not_finite(moved, case.accept.not_finite)
    if group == Group.GRADIENTS:
        found += dead_gradients(numbers, case.accept.zero_gradients)
    return found + (constant_leaves(group, numbers) if numbers and group == Group.VALUES else [])
