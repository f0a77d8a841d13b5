"""What both sides return, and what the ladder measures them by."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from parity.builds.build import SEED, Group
from parity.compare.side import Side, SideError
from parity.compare.unpaired import with_counters_of, without_alone
from parity.values.noise import DRAWS, nudge, to_float64

if TYPE_CHECKING:
    from parity.compare.comparison import Comparison

__all__ = ["NO_EXACT", "SEED", "Outputs", "Runs", "beside"]

NO_EXACT = "why there is no float64 run"
"""What a comparison is asked ``once``."""
Outputs = dict[str, dict[str, np.ndarray]]


def beside(work: "Comparison", reference: Outputs, candidate: Outputs) -> tuple[Outputs, Outputs]:
    """Returns what both sides returned under the reference's paths, without leaves that have no partner."""
    ours, theirs = (
        without_alone(outputs, paths)
        for outputs, paths in zip((reference, candidate), work.weights.alone, strict=True)
    )
    back = {group: work.to_reference(leaves) for group, leaves in theirs.items()}
    if Group.STATE in back:
        back[Group.STATE] = with_counters_of(ours.get(Group.STATE, {}), back[Group.STATE])
    return ours, back


class Runs:
    """What both sides return, and what the ladder measures them by, with choices forced or free.

    Args:
        work: the comparison.
        forced: inputs beside the batch, the same on every side.
    """

    def __init__(self, work: "Comparison", forced: Mapping[str, np.ndarray]):
        self._work, self._extra = work, forced

    def _side(self, side: Side) -> Side:
        if not self._extra:
            return side
        build, extra = side.build, self._extra
        shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in extra.items()}
        forced = dataclasses.replace(
            build,
            name=f"{build.name} with its routing forced",
            inputs=lambda seed: {**build.inputs(seed), **extra},
            abstract_inputs={**build.abstract_inputs, **shapes},
        )
        return dataclasses.replace(side, build=forced)

    @functools.cached_property
    def _reference(self) -> Side:
        return self._side(self._work.reference)

    @functools.cached_property
    def outputs(self) -> tuple[Outputs, Outputs]:
        """What both sides return, the candidate's under the reference's paths."""
        work = self._work
        reference = self._reference.run(work.state, SEED)
        candidate = self._side(work.candidate).run(work.candidate_state, SEED)
        return beside(work, reference, candidate)

    @functools.cached_property
    def contracted(self) -> tuple[Outputs, Outputs]:
        """What both sides return if the compiler may round a product and a sum once: at LLVM's level 3."""
        work = self._work
        backend: Any = work.reference.backend
        backend = dataclasses.replace(backend, options=(("xla_backend_optimization_level", 3),))
        ours, theirs = (
            dataclasses.replace(self._side(side), backend=backend)
            for side in (work.reference, work.candidate)
        )
        return beside(work, ours.run(work.state, SEED), theirs.run(work.candidate_state, SEED))

    @functools.cached_property
    def nudged(self) -> list[Outputs]:
        """What the reference returns from weights and inputs that are one ulp off, draw by draw."""
        runs = []
        for draw in range(DRAWS):
            rng = np.random.default_rng(1_000 + draw)
            alter = functools.partial(nudge, rng=rng)
            run = self._reference.run(alter(self._work.state), SEED, alter)
            runs.append(without_alone(run, self._work.weights.alone[0]))
        return runs

    @functools.cached_property
    def exact(self) -> Outputs:
        """What the reference returns in float64; nothing where the model cannot be traced in it."""
        with jax.enable_x64(True):
            side = self._side(self._work.exact_side())
            try:
                _ = side.traced
            except (
                SideError
            ) as error:  # a carry that starts in float32, whatever the inputs: told with the result
                why = str(error.cause).partition("\n")[0]
                self._work.once(NO_EXACT, lambda: why)
                return {group: {} for group in self.outputs[0]}
            return side.run(to_float64(self._work.state), SEED)
