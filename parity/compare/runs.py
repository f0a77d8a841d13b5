"""Runs of both sides, and of the reference from other numbers: what the channels of values are judged by."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from parity.builds.build import SEED, Group
from parity.cases.case import made
from parity.compare.backends.registry import find
from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.memo import Memo, Once
from parity.compare.side import Side
from parity.compare.unpaired import rename_to_reference, with_counters_of, without_alone
from parity.values.ladder import Absent, Judge, deviation
from parity.values.noise import DRAWS, measure_floor, nudge, to_float64
from parity.values.routing import ChangedChoice, find_flips, forced_inputs, margin_noise

__all__ = ["Outputs", "Runs", "pair_outputs"]

Outputs = dict[str, dict[str, np.ndarray]]


def pair_outputs(evidence: Evidence, reference: Outputs, candidate: Outputs) -> tuple[Outputs, Outputs]:
    """Returns the outputs of both sides under the reference's paths, without leaves that have no partner.

    Args:
        evidence: the case.
        reference, candidate: the outputs of each side.
    """
    ours, theirs = (
        without_alone(outputs, paths)
        for outputs, paths in zip((reference, candidate), evidence.weights.alone, strict=True)
    )
    back = {group: rename_to_reference(evidence.weights, leaves) for group, leaves in theirs.items()}
    if Group.STATE in back:
        back[Group.STATE] = with_counters_of(ours.get(Group.STATE, {}), back[Group.STATE])
    return ours, back


@dataclasses.dataclass(frozen=True, eq=False)
class _Routed:
    """Runs in which some choices of experts are inputs next to the batch.

    Args:
        evidence: the case.
        choices: the inputs; empty to let each side choose.
    """

    evidence: Evidence
    choices: Mapping[str, np.ndarray]
    memo: Memo = dataclasses.field(default_factory=Memo, init=False, repr=False)

    def _side(self, side: Side) -> Side:
        if not self.choices:
            return side
        build, extra = side.build, self.choices
        shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in extra.items()}
        forced = dataclasses.replace(
            build,
            name=f"{build.name} with its routing forced",
            inputs=lambda seed: {**build.inputs(seed), **extra},
            abstract_inputs={**build.abstract_inputs, **shapes},
        )
        return dataclasses.replace(side, build=forced)

    @Once
    def _reference(self) -> Side:
        return self._side(self.evidence.reference)

    @Once
    def outputs(self) -> tuple[Outputs, Outputs]:
        return self._both(self._reference, self._side(self.evidence.candidate))

    @Once
    def contracted(self) -> tuple[Outputs, Outputs]:
        backend: Any = self.evidence.reference.backend
        backend = dataclasses.replace(backend, options=(("xla_backend_optimization_level", 3),))
        sides = (self._reference, self._side(self.evidence.candidate))
        ours, theirs = (dataclasses.replace(side, backend=backend) for side in sides)
        return self._both(ours, theirs)

    def _both(self, ours: Side, theirs: Side) -> tuple[Outputs, Outputs]:
        evidence = self.evidence
        reference = ours.run(evidence.state, SEED)
        return pair_outputs(evidence, reference, theirs.run(evidence.candidate_state, SEED))

    @Once
    def nudged(self) -> list[Outputs]:
        runs = []
        for draw in range(DRAWS):
            alter = functools.partial(nudge, rng=np.random.default_rng(1_000 + draw))
            run = self._reference.run(alter(self.evidence.state), SEED, alter)
            runs.append(without_alone(run, self.evidence.weights.alone[0]))
        return runs

    @Once
    def float64(self) -> Outputs | Absent:
        case, session = self.evidence.case, self.evidence.session
        if case.exact is None:
            return Absent("the case has no float64 reference")
        with jax.enable_x64(True):
            build = made(case.exact, find(case.backend, session.compiler).mesh, case.mesh)
            side = self._side(session.side(build, case, case.mesh))
            try:
                _ = side.traced
            except SideError as error:  # a carry that starts in float32, whatever the inputs
                return Absent(str(error.cause).partition("\n")[0])
            return side.run(to_float64(self.evidence.state), SEED)


class Runs:
    """The runs of a case, each made when it is first read; a reader of `Evidence`.

    If the sides choose other experts only because of rounding, values are judged by runs with the reference's choices
    forced on both sides.

    Args:
        evidence: of a case on a backend that executes.
    """

    def __init__(self, evidence: Evidence):
        self._evidence, self.memo = evidence, Memo()

    @Once
    def _free(self) -> _Routed:
        return _Routed(self._evidence, {})

    @Once
    def _forced(self) -> _Routed:
        return _Routed(self._evidence, forced_inputs(self._free.outputs[0][Group.ROUTING]))

    @property
    def _judged(self) -> _Routed:
        return self._forced if self.only_ties else self._free

    @Once
    def flips(self) -> list[ChangedChoice]:
        """The tokens that choose other experts, apart from those that follow from an earlier choice.

        With the reference's choices forced on both sides, every layer sees what it would see without
        earlier flips, and says what it would choose.
        """
        ours, theirs = (outputs.get(Group.ROUTING, {}) for outputs in self._free.outputs)
        free = find_flips(ours, theirs, {}) if set(ours) == set(theirs) else []
        if (
            not free or self._evidence.reference.program.steps > 1
        ):  # choices of the first step are all there are
            return free
        reference, candidate = (outputs[Group.ROUTING] for outputs in self._forced.outputs)
        runs = [again[Group.ROUTING] for again in self._forced.nudged]
        exact = self._forced.float64
        runs += [] if isinstance(exact, Absent) else [exact[Group.ROUTING]]
        noise = margin_noise(reference, runs)
        return find_flips(reference, candidate, noise) or find_flips(ours, theirs, noise)

    @property
    def only_ties(self) -> bool:
        """True if the sides choose other experts, and only because of rounding."""
        return bool(self.flips) and all(flip.is_tie for flip in self.flips)

    @property
    def outputs(self) -> tuple[Outputs, Outputs]:
        """The outputs of both sides, the candidate's under the reference's paths."""
        return self._judged.outputs

    @property
    def contracted(self) -> tuple[Outputs, Outputs]:
        """The same if the compiler may round a product and a sum once: at LLVM's level 3."""
        return self._judged.contracted

    @property
    def nudged(self) -> list[Outputs]:
        """The outputs of the reference from weights and inputs that are one ulp off, draw by draw."""
        return self._judged.nudged

    @property
    def float64(self) -> Outputs | Absent:
        """The outputs of the reference in float64, or why there are none."""
        return self._judged.float64

    @Once
    def _differs_anywhere(self) -> bool:
        """True if any process sees a difference in its part of the outputs."""
        ours, theirs = self.outputs
        differs = any(
            deviation(path, array, theirs[group][path]) is not None
            for group, leaves in ours.items()
            for path, array in leaves.items()
            if path in theirs.get(group, {})
        )
        return bool(np.any(multihost_utils.process_allgather(np.array(differs))))

    def judge(self, group: str) -> Judge:
        """Returns the lower rungs of the ladder for one group of outputs.

        What is proved and runs all the same must give equal bits.
        """
        has_float64 = self._evidence.case.exact is not None
        if jax.process_count() > 1 and self._differs_anywhere:
            _ = self.nudged, has_float64 and self.float64  # by all processes: none can run alone

        def float64() -> Mapping[str, np.ndarray] | Absent:
            run = self.float64
            return run if isinstance(run, Absent) else run[group]

        return Judge(
            floor=lambda: measure_floor(self.outputs[0][group], [again[group] for again in self.nudged]),
            exact=float64 if has_float64 else None,
            required=self._evidence.required_of_numbers,
        )
