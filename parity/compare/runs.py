"""Runs of both sides in a trial, also from perturbed numbers, for the channels of values."""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from parity.builds.build import SEED, Group
from parity.cases.case import made
from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.memo import Memo, Once
from parity.compare.side import Side, rerounded_side, rounded_side, widened_side
from parity.compare.unpaired import rename_to_reference, with_counters_of, without_unpaired
from parity.ir.jaxprs import equations
from parity.ir.precision import changed_types, rounds
from parity.values.ladder import (
    FLOOR_FACTOR,
    MINOR,
    Absent,
    Judge,
    Rounding,
    deviation,
    distance_in_floors,
    is_within,
)
from parity.values.noise import DRAWS, is_distribution, is_mask, measure_floor, nudge, to_float64
from parity.values.routing import ChangedChoice, find_flips, forced_inputs, margin_noise

MARGINAL = 10.0
"""Factor by which a leaf is not far beyond its noise."""
Flat = Mapping[str, np.ndarray]
Outputs = dict[str, dict[str, np.ndarray]]
Move = Callable[[Flat, np.random.Generator], Flat]


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A state and a batch that both sides run on.

    Args:
        state: the reference's.
        seed: seed of the batch of its first step.
        alter: changes a batch; None for the usual one.
        steps: number of steps; None for the program's own.
        move: perturbs state and batch, for the noise.
        saturates: see `StressKind`.
        ties: True if entries equal constants, so that rounding decides for either side.
        pads: True if masks of the batch change, too.
        empties: True if masks hide everything: forms of a mask differ there, so that only what is finite on one side
            and not on the other is compared.
        tiny: entries of parameters that are about zero, by path.
    """

    name: str
    state: Flat
    seed: int = SEED
    alter: Callable[[Flat], Flat] | None = None
    steps: int | None = 1
    move: Move = nudge
    saturates: bool = False
    ties: bool = False
    pads: bool = False
    empties: bool = False
    tiny: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def batch(self, given: Flat) -> Flat:
        """Returns a batch changed: masks stay, unless this trial pads, and distributions add up to one again."""
        if self.alter is None:
            return given
        changed = dict(self.alter(dict(given)))
        for path in [path for path, array in given.items() if is_distribution(array)]:
            wide = np.abs(changed[path].astype(np.float64))
            if np.isfinite(wide).all() and (total := wide.sum(-1, keepdims=True)).all():
                changed[path] = (wide / total).astype(given[path].dtype)
        masks = {path: array for path, array in given.items() if is_mask(array)}
        return changed if self.pads else {**changed, **masks}

    def moved(self, batch: Flat, rng: np.random.Generator) -> Flat:
        """Returns a batch perturbed; masks and distributions of a changed one stay."""
        kept = {} if self.alter is None else batch
        kept = {path: each for path, each in kept.items() if is_mask(each) or is_distribution(each)}
        return {**self.move(batch, rng), **kept}


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
    """Runs of both sides in a trial, each made when it is first read.

    Args:
        evidence: the case, on a backend that executes.
        changed: returns a side in another precision, or compiled differently.
        choices: choices of experts that are inputs in addition to the batch; empty to let each side choose.
    """

    evidence: Evidence
    trial: Trial
    changed: Callable[[Side], Side] = lambda side: side
    choices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    memo: Memo = dataclasses.field(default_factory=Memo, init=False, repr=False)

    def _forced(self, side: Side) -> Side:
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
        return self._forced(self.evidence.reference), self._forced(self.evidence.candidate)

    def _run(self, place: int, seed: int | None = None) -> Outputs:
        """Runs one side, from perturbed numbers if there is a seed."""
        trial, rng = self.trial, None if seed is None else np.random.default_rng(seed)
        state = trial.state if rng is None else trial.move(trial.state, rng)

        def alter(batch: Flat) -> Flat:
            given = trial.batch(batch)
            return given if rng is None else trial.moved(given, rng)

        carried = self.evidence.as_candidate(state) if place else dict(state)
        return self._sides[place].read(self.changed).run(carried, trial.seed, alter, trial.steps)

    @Once
    def outputs(self) -> tuple[Outputs, Outputs]:
        """The outputs of both sides, the candidate's under the reference's paths."""
        return pair_outputs(self.evidence, self._run(0), self._run(1))

    def perturbed(self, place: int, seed: int) -> Outputs:
        """Returns the outputs of the reference, place 0, or of the candidate, 1, from perturbed numbers."""
        return self.memo(self._perturbed, place, seed)

    def _perturbed(self, place: int, seed: int) -> Outputs:
        outputs = self._run(place, seed)
        return pair_outputs(self.evidence, *((outputs, {}) if place == 0 else ({}, outputs)))[place]

    @Once
    def nudged(self) -> list[Outputs]:
        """The outputs of the reference from weights and inputs that are one ulp off, for each draw."""
        return [self.perturbed(0, 1_000 + draw) for draw in range(DRAWS)]

    def _floor(self, group: str) -> dict[str, float]:
        """Returns the noise of each leaf of a group, and that of other rounding if the leaf is not far beyond its own.

        Adam makes a step of rounding where a gradient is nearly zero, which few draws show.
        """
        left, right = (side[group] for side in self.outputs)
        found = measure_floor(left, [again[group] for again in self.nudged])
        shared = [path for path in left if path in right]
        off = filter(None, (deviation(path, left[path], right[path], place=False) for path in shared))
        near = [
            each.path
            for each in off
            if 1 < distance_in_floors(each, found) / FLOOR_FACTOR <= MARGINAL and jax.process_count() == 1
        ]
        if near:
            again = dataclasses.replace(self, changed=rerounded_side).nudged
            more = measure_floor({path: left[path] for path in near}, [run[group] for run in again])
            found |= {path: max(noise, found[path]) for path, noise in more.items()}
        return found

    @Once
    def contracted(self) -> tuple[Outputs, Outputs]:
        """The outputs if the compiler may round a product and a sum once: at LLVM's level 3."""
        return dataclasses.replace(self, changed=contracted_side).outputs

    @Once
    def _roundings(self) -> Mapping[str, Rounding]:
        """The noise of narrow types by group, for leaves on which both programs agree when computed in float32.

        In training it is the largest of more draws of both sides: Adam makes a step of rounding where a gradient is
        nearly zero.
        """
        outputs, why = self.outputs, self.evidence.read(unmeasured_rounding)
        if why != "":
            return dict.fromkeys(outputs[0], Rounding(detail=why or ""))
        wide = dataclasses.replace(self, changed=widened_side)
        (left, right), in_float32 = wide.outputs, wide.nudged
        narrow = dataclasses.replace(self, changed=rounded_side)

        def rounding(group: str) -> Rounding:
            floor = measure_floor(left[group], [run[group] for run in in_float32])
            noise = measure_floor(outputs[0][group], [run[group] for run in narrow.nudged])
            for place, side in enumerate(outputs) if self.evidence.reference.program.steps > 1 else ():
                again = [narrow.perturbed(place, 1_000 + draw) for draw in range(2 * DRAWS)]
                more = measure_floor(side[group], [run[group] for run in again], max)
                noise = {path: max(size, more.get(path, 0.0)) for path, size in noise.items()}
            agreeing = [
                path
                for path, array in left[group].items()
                if (off := deviation(path, array, right[group][path])) is None or is_within(off, array, floor)
            ]
            differing = len(left[group]) - len(agreeing)
            noise = {path: size for path, size in noise.items() if path.removesuffix(MINOR) in agreeing}
            return Rounding(noise, f"computed in float32 {differing or 'no'} leaves are beyond the noise")

        return {group: rounding(group) for group in outputs[0]}

    @Once
    def float64(self) -> Outputs | Absent:
        """The outputs of the reference in float64, or the reason why there are none."""
        side, inputs = self.evidence.read(float64_side), self._sides[0].build.abstract_inputs
        if isinstance(side, Absent):
            return side

        def alter(batch: Flat) -> Flat:
            given = {path: array.astype(inputs[path].dtype) for path, array in batch.items()}
            wide = to_float64(self.trial.batch(given))
            return {path: array.astype(wanted[path].dtype) for path, array in wide.items()}

        exact = self._forced(side)
        wanted = exact.build.abstract_inputs  # some may stay float32, such as the scale of a loss
        with jax.enable_x64(True):
            return exact.run(to_float64(self.trial.state), self.trial.seed, alter, self.trial.steps)

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
            floor=lambda: self._floor(group),
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
    if _draws(side) != _draws(evidence.reference):
        return Absent("it draws other random numbers in float64")
    return side


def _draws(side: Side) -> collections.Counter[tuple]:
    """Returns the draws of a program, by kind, shape and type."""
    drawn = [
        (each.primitive.name, each.outvars[0].aval)
        for each in equations(side.traced.jaxpr)
        if each.primitive.name in ("random_bits", "random_gamma", "rng_uniform")
    ]
    return collections.Counter((name, kind.shape, str(kind.dtype)) for name, kind in drawn)


def contracted_side(side: Side) -> Side:
    """Returns a side whose compiler may round a product and a sum once: at LLVM's level 3."""
    backend: Any = side.backend
    options = (("xla_backend_optimization_level", 3),)
    return dataclasses.replace(side, backend=dataclasses.replace(backend, options=options))


def usual_trial(evidence: Evidence) -> Trial:
    """Returns the usual state and batches."""
    return Trial(name="usual", state=evidence.state, steps=None)


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
    return Runs(evidence, usual_trial(evidence))


def forced_runs(evidence: Evidence) -> Runs:
    """Returns the runs in which both sides get the choices of the reference."""
    free = evidence.read(free_runs)
    return dataclasses.replace(free, choices=forced_inputs(free.outputs[0][Group.ROUTING]))


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
