"""Evaluates both sides of a case operation by operation, step after step, until results differ."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.builds.build import Group
from parity.builds.meshes import MeshSpec
from parity.builds.tree import to_host
from parity.builds.weights.transforms import Concat, Identity, Split, Stack, Unstack
from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.origin.alignment import RECAST, Alignment, floors
from parity.compare.origin.divergence import Divergence, find_divergences
from parity.compare.origin.trace import Layouts, Trace, evaluate
from parity.compare.runs import Outputs, Trial, pair_outputs, usual_trial
from parity.compare.side import Side
from parity.ir.jax_internals import live
from parity.ir.precision import rounds
from parity.values.ladder import deviation, distance_in_floors, is_within
from parity.values.noise import measure_floor, nudge

DRAWS = 2
"""Number of evaluations of the reference with nudged weights and inputs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A result that is beyond the floor.

    Args:
        in_floors: distance in units of the noise; infinite if the noise is zero or not finite.
    """

    group: str
    path: str
    in_floors: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The first step in which results differ, or the last if none do.

    Args:
        step: its number, from 1.
        failing: the results beyond the floor, worst first.
        divergences: places where the programs diverge on the way to these results, in order.
        partners: path of a leaf of the reference -> its paths on the candidate side.
        guessed: paths of both sides' leaves that the weight map pairs by guess.
    """

    step: int
    alignment: Alignment
    failing: tuple[Result, ...]
    divergences: tuple[Divergence, ...]
    partners: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    guessed: frozenset[str] = frozenset()


def on_one_device(case: Case) -> Case:
    """Returns a case on one CPU device, or on its mesh if axes belong to the model."""
    if case.fixed_axes:
        return case.with_placement(backend="cpu")
    return dataclasses.replace(case.with_placement(backend="cpu"), mesh=MeshSpec(), candidate_mesh=None)


def evaluate_case(work: Evidence, group: str = "", trial: Trial | None = None) -> Evaluated:
    """Evaluates both sides operation by operation, until a step with different results.

    Programs with bfloat16 or float16 are first evaluated in float32, where rounding does not hide the cause. If their
    results agree there, the cause is the first operation in another type.

    Args:
        group: only results of this group count as differing, if any do; for values, only what they need is run.
        trial: the state and the batch; None for the standard ones.

    Raises:
        MapError: there is no weight map.
        SideError: a side cannot be traced.
    """
    narrow, trial = any(rounds(side.traced.jaxpr) for side in work.sides), trial or usual_trial(work)
    found = _until_different(work, group, trial, wide=narrow)
    if found.failing or not narrow:
        return found
    rounded, typed = _until_different(work, group, trial, wide=False), _first_of_other_type(found.alignment)
    # A type of the backward pass is no cause of a difference before it.
    before = any(_is_backward(each) for each in typed) and not all(map(_is_backward, rounded.divergences[:1]))
    if typed and rounded.failing and found.step == rounded.step and not before:
        return dataclasses.replace(rounded, alignment=found.alignment, divergences=typed)
    return rounded


def _is_backward(divergence: Divergence) -> bool:
    return all(node.around.backward for node in divergence.nodes if node)


def _first_of_other_type(alignment: Alignment) -> tuple[Divergence, ...]:
    """Returns the first operation that both sides do on equal values, in another type; empty if there is none."""
    left, right = (trace.nodes for trace in alignment.traces)
    for at, other in enumerate(alignment.matches[0]):
        one, two = left[at], right[other]
        if other < 0 or one.name != two.name or one.literal or one.name in RECAST:
            continue  # a value that is only cast has equal values around it
        if one.equation and two.equation:
            types = [node.equation.outvars[0].aval.dtype for node in (one, two)]
            if types[0] != types[1] and alignment.matches[1][other] == at:
                return (Divergence(alignment, (at, other), at),)
    return ()


def _until_different(work: Evidence, group: str, trial: Trial, wide: bool) -> Evaluated:
    states = [trial.state, work.as_candidate(trial.state)]
    for step in range(1, work.reference.program.steps + 1):
        found, outputs = _step(work, states, step, group, trial, wide)
        if not found.failing and _part(work, group):
            found, outputs = _step(work, states, step, "", trial, wide)
        if found.failing or step == work.reference.program.steps:
            return found
        states = [each.get(Group.STATE, {}) for each in outputs]
    raise AssertionError("programs have at least one step")


def _step(
    work: Evidence,
    states: Sequence[Mapping[str, np.ndarray]],
    step: int,
    group: str,
    trial: Trial,
    wide: bool,
) -> tuple[Evaluated, list[Outputs]]:
    sides, part = (work.reference, work.candidate), _part(work, group)
    with work.session.clock.phase("both sides", "execute"):
        batch = [trial.batch(side.build.inputs(trial.seed + step - 1)) for side in sides]
        layouts = [_layouts(work, side) for side in (0, 1)]
        how = (part, wide, str(layouts), work.case.prepare_state, step, trial.name)
        first, second = ((side.build, side.program.name, side.mesh, side.backend.name) for side in sides)

        def run(side: int, draw: int | None = None) -> Trace:
            alter = functools.partial(nudge, rng=np.random.default_rng(1_000 + (draw or 0)))
            given = [alter(each) if draw is not None else each for each in (states[side], batch[side])]
            options = {"wide": wide, "ascending": draw is None}
            return _run(sides[side], part, layouts[side], *given, **options)

        share = work.session.evaluation
        runs = [share(lambda: run(0), by=(first, how)), share(lambda: run(1), by=(first, second, how))]
        nudged = [share(functools.partial(run, 0, draw), by=(first, how, draw)) for draw in range(DRAWS)]
    outputs = [_named(side, run) for side, run in zip(sides, runs, strict=True)]
    again = [_named(sides[0], run) for run in nudged]
    differing = _differing(work, outputs, again)
    failing = [one for one in differing if one.group == group] or differing
    alignment = Alignment(runs[0], runs[1], floors(runs[0], nudged))
    partners = {path: entry.candidate for entry in work.weights.entries for path in entry.reference}
    numbers = [
        dict(zip(side.results, run.outputs, strict=True)) for side, run in zip(sides, runs, strict=True)
    ]

    def ends(results: Sequence[Result]) -> list[tuple[int, int]]:
        return [
            (numbers[0][one.group, one.path], numbers[1][one.group, path])
            for one in results
            for path in partners.get(one.path, [one.path])
        ]

    paths = [each.path for each in failing]
    found = Evaluated(
        step=step,
        alignment=alignment,
        failing=tuple(failing),
        divergences=tuple(find_divergences(alignment, ends(failing), ends(differing), paths)),
        partners=partners,
        guessed=frozenset(path for one in work.weights.guessed for path in (*one.reference, *one.candidate)),
    )
    return found, outputs


def _layouts(work: Evidence, side: int) -> Layouts:
    """Returns the layouts of the weights that are one array on a side and transformed, or several, on the other."""
    found: dict[tuple, list] = {}
    for entry in work.weights.entries:
        ends, transform = (entry.reference, entry.candidate), entry.transform
        if isinstance(transform, Identity) or len(ends[side]) > 1:
            continue
        shape: tuple = work.builds[side].leaves[ends[side][0]].shape
        if isinstance(transform, Concat | Split | Stack | Unstack):
            axis = transform.axis % len(shape) - len(shape)
            transform, shape = dataclasses.replace(transform, axis=axis), (..., *shape[axis:])
        layouts = found.setdefault(shape, [])
        if (transform, side == 0) not in layouts:
            layouts.append((transform, side == 0))
    return found


def _part(work: Evidence, group: str) -> str:
    """Returns the only group of results that is evaluated first; empty for all: most need most of a program."""
    return group if group == Group.VALUES and work.reference.program.steps == 1 else ""


def _run(side: Side, part: str, layouts: Layouts, state: Mapping, batch: Mapping, **how: bool) -> Trace:
    """Returns the evaluation of a program; results outside of ``part`` are None. ``how``: see `evaluate`."""
    names, jaxpr = sorted(side.build.abstract_inputs), side.traced.jaxpr
    wanted = [part in ("", group) for group, _ in side.results]
    if not all(wanted):
        jaxpr = jaxpr.replace(jaxpr=live(jaxpr.jaxpr, wanted))
    with side.backend.context(side.mesh):
        arguments = [*side.placed(state).values(), *(jnp.asarray(batch[name]) for name in names)]
        labels = [*side.state_paths, *names]
        run = evaluate(jaxpr, arguments, labels, layouts, check=side.clock.check, **how)
    ends = zip(run.outputs, run.results, strict=True)
    found = [next(ends) if each else (-1, None) for each in wanted]
    return Trace(run.nodes, [number for number, _ in found], [array for _, array in found])


def _named(side: Side, run: Trace) -> Outputs:
    outputs: Outputs = {}
    for (group, path), array in zip(side.results, run.results, strict=True):
        if array is not None:
            outputs.setdefault(group, {}).update(to_host({path: jnp.asarray(array)}))
    return outputs


def _differing(work: Evidence, outputs: list[Outputs], again: list[Outputs]) -> list[Result]:
    left, right = pair_outputs(work, *outputs)
    found = []
    for name, leaves in left.items():
        noise = measure_floor(leaves, [{path: run[name][path] for path in leaves} for run in again])
        for path, array in leaves.items():
            other = right.get(name, {}).get(path)
            off = deviation(path, array, other) if other is not None else None
            if off is not None and not is_within(off, array, noise):
                found.append(Result(group=name, path=path, in_floors=distance_in_floors(off, noise)))
    return sorted(found, key=lambda result: -result.in_floors)
