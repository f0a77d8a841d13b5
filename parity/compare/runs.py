"""Runs of both sides, and of the reference from perturbed numbers, for the channels of values."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from parity.builds.build import SEED, Group
from parity.cases.case import made
from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.memo import Memo, Once
from parity.compare.side import Side, rounded_side, widened_side
from parity.compare.unpaired import rename_to_reference, with_counters_of, without_unpaired
from parity.ir.precision import changed_types, rounds
from parity.values.ladder import MINOR, Absent, Judge, Rounding, deviation, is_within
from parity.values.noise import DRAWS, measure_floor, nudge, to_float64
from parity.values.routing import ChangedChoice, find_flips, forced_inputs, margin_noise

Outputs = dict[str, dict[str, np.ndarray]]


def pair_outputs(evidence: Evidence, reference: Outputs, candidate: Outputs) -> tuple[Outputs, Outputs]:
    """Returns the outputs of both sides under the reference's paths, without leaves that have no partner."""
    left, right = (
        without_unpaired(outputs, paths)
        for outputs, paths in zip((reference, candidate), evidence.weights.alone, strict=True)
    )
    back = {group: rename_to_reference(evidence.weights, leaves) for group, leaves in right.items()}
    if Group.STATE in back:
        back[Group.STATE] = with_counters_of(left.get(Group.STATE, {}), back[Group.STATE])
    return left, back


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
    """Runs of both sides from one state and one batch a step, each made when it is first read.

    Args:
        evidence: the case, on a backend that executes.
        choices: choices of experts that are inputs in addition to the batch; empty to let each side choose.
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
    def _sides(self) -> tuple[Side, Side]:
        return self._side(self.evidence.reference), self._side(self.evidence.candidate)

    def _run(self, sides: tuple[Side, Side]) -> tuple[Outputs, Outputs]:
        reference = sides[0].run(self.evidence.state, SEED)
        return pair_outputs(self.evidence, reference, sides[1].run(self.evidence.candidate_state, SEED))

    @Once
    def outputs(self) -> tuple[Outputs, Outputs]:
        """The outputs of both sides, the candidate's under the reference's paths."""
        return self._run(self._sides)

    @Once
    def contracted(self) -> tuple[Outputs, Outputs]:
        """The outputs if the compiler may round a product and a sum once: at LLVM's level 3."""
        backend: Any = self.evidence.reference.backend
        backend = dataclasses.replace(backend, options=(("xla_backend_optimization_level", 3),))
        left, right = (dataclasses.replace(side, backend=backend) for side in self._sides)
        return self._run((left, right))

    @Once
    def nudged(self) -> list[Outputs]:
        """The outputs of the reference from weights and inputs that are one ulp off, for each draw."""
        return self._nudged(self._sides[0])

    def _nudged(self, side: Side) -> list[Outputs]:
        runs = []
        for draw in range(DRAWS):
            alter = functools.partial(nudge, rng=np.random.default_rng(1_000 + draw))
            run = side.run(alter(self.evidence.state), SEED, alter)
            runs.append(without_unpaired(run, self.evidence.weights.alone[0]))
        return runs

    @Once
    def _roundings(self) -> Mapping[str, Rounding]:
        """The noise of narrow types by group, for leaves on which both programs agree when computed in float32."""
        outputs, why = self.outputs[0], self.evidence.read(unmeasured_rounding)
        if why != "":
            return dict.fromkeys(outputs, Rounding(detail=why or ""))
        wide = (self._sides[0].read(widened_side), self._sides[1].read(widened_side))
        left, right = self._run(wide)
        in_float32, again = self._nudged(wide[0]), self._nudged(self._sides[0].read(rounded_side))

        def rounding(group: str) -> Rounding:
            floor = measure_floor(left[group], [run[group] for run in in_float32])
            noise = measure_floor(outputs[group], [run[group] for run in again])
            agreeing = [
                path
                for path, array in left[group].items()
                if (off := deviation(path, array, right[group][path])) is None or is_within(off, array, floor)
            ]
            differing = len(left[group]) - len(agreeing)
            noise = {path: size for path, size in noise.items() if path.removesuffix(MINOR) in agreeing}
            return Rounding(noise, f"computed in float32 {differing or 'no'} leaves are beyond the noise")

        return {group: rounding(group) for group in outputs}

    @Once
    def float64(self) -> Outputs | Absent:
        """The outputs of the reference in float64, or the reason why there are none."""
        side = self.evidence.read(float64_side)
        if isinstance(side, Absent):
            return side
        with jax.enable_x64(True):
            return self._side(side).run(to_float64(self.evidence.state), SEED)

    @Once
    def _differs_anywhere(self) -> bool:
        """True if any process sees a difference in its part of the outputs."""
        left, right = self.outputs
        differs = any(
            deviation(path, array, right[group][path]) is not None
            for group, leaves in left.items()
            for path, array in leaves.items()
            if path in right.get(group, {})
        )
        return bool(np.any(multihost_utils.process_allgather(np.array(differs))))

    def judge(self, group: str) -> Judge:
        """Returns the lower rungs of the ladder for one group of outputs.

        A proved case that must run requires equal bits.
        """
        has_float64 = self.evidence.case.float64_reference is not None
        if jax.process_count() > 1 and self._differs_anywhere:
            _ = (
                self.nudged,
                self._roundings,
                has_float64 and self.float64,
            )  # by all processes, because none can run alone

        def float64() -> Mapping[str, np.ndarray] | Absent:
            run = self.float64
            return run if isinstance(run, Absent) else run[group]

        return Judge(
            floor=lambda: measure_floor(self.outputs[0][group], [again[group] for again in self.nudged]),
            rounding=lambda: self._roundings.get(group, Rounding()),
            exact=float64 if has_float64 else None,
            required=self.evidence.required_of_numbers,
            each=bool(self.evidence.case.accept.waivers),
        )


def float64_side(evidence: Evidence) -> Side | Absent:
    """Returns the reference in float64, or the reason why there is none. A reader of `Evidence`, like those below."""
    case, session = evidence.case, evidence.session
    if case.float64_reference is None:
        return Absent("the case has no float64 reference")
    with jax.enable_x64(True):
        build = made(case.float64_reference, session.backend_of(case).mesh, case.mesh)
        side = session.side(build, case, case.mesh)
        try:
            _ = side.traced
        except SideError as error:  # a carry that starts in float32 regardless of the inputs
            return Absent(str(error.cause).partition("\n")[0])
    return side


def unmeasured_rounding(evidence: Evidence) -> str | None:
    """Returns the reason why rounding to narrow floats cannot explain a difference; empty if it can.

    None is no reason to report: neither program computes in narrow floats.
    """
    jaxprs = [side.traced.jaxpr for side in evidence.sides]
    if not any(map(rounds, jaxprs)):
        return None
    if changed := changed_types(*jaxprs):
        return f"arithmetic in other types: {changed[0]}"
    try:
        _ = [side.read(change).lowered for side in evidence.sides for change in (rounded_side, widened_side)]
    except SideError as error:  # an operation that has no other precision
        return f"not computed in float32: {str(error.cause).partition(chr(10))[0]}"
    return ""


def free_runs(evidence: Evidence) -> Runs:
    """Returns the runs in which each side chooses its experts."""
    return Runs(evidence, {})


def forced_runs(evidence: Evidence) -> Runs:
    """Returns the runs in which both sides get the choices of the reference."""
    return Runs(evidence, forced_inputs(evidence.read(free_runs).outputs[0][Group.ROUTING]))


def judged_runs(evidence: Evidence) -> Runs:
    """Returns the runs by which values are judged: with the routing forced equal if rounding decides it."""
    return evidence.read(forced_runs if evidence.read(only_ties) else free_runs)


def only_ties(evidence: Evidence) -> bool:
    """Returns True if the sides choose different experts, and only because of rounding."""
    changed = evidence.read(changed_choices)
    return bool(changed) and all(choice.is_tie for choice in changed)


def changed_choices(evidence: Evidence) -> list[ChangedChoice]:
    """Returns the tokens that choose different experts, except those that follow from an earlier choice.

    With the reference's choices forced on both sides, earlier changes do not affect the inputs of a layer, and it
    still returns its own choice.
    """
    left, right = (outputs.get(Group.ROUTING, {}) for outputs in evidence.read(free_runs).outputs)
    free = find_flips(left, right, {}) if set(left) == set(right) else []
    if not free or evidence.reference.program.steps > 1:  # there are only choices of the first step
        return free
    forced = evidence.read(forced_runs)
    reference, candidate = (outputs[Group.ROUTING] for outputs in forced.outputs)
    runs = [again[Group.ROUTING] for again in forced.nudged]
    runs += [] if isinstance(forced.float64, Absent) else [forced.float64[Group.ROUTING]]
    noise = margin_noise(reference, runs)
    return find_flips(reference, candidate, noise) or find_flips(left, right, noise)
