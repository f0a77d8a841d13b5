"""Stress runs: unproved programs that agree on the standard batch are also run on stress inputs."""

import dataclasses
import functools
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from parity.builds.build import Group
from parity.compare.aims import harvest
from parity.compare.evidence import Evidence
from parity.compare.runs import Outputs, Runs, Trial, unmeasured_rounding, usual_trial
from parity.compare.side import rerounded_side, rounded_side, unchecked_side, widened_side
from parity.compare.trials import (
    aimed,
    at_counts,
    extreme_trials,
    not_finite,
    on_constants,
    over_scales,
    padded,
)
from parity.compare.unpaired import split_step
from parity.ir.checks import count_checks
from parity.values.ladder import Absent, Deviation, deviation, rung_beyond
from parity.values.noise import DRAWS, finite_norm, is_float
from parity.values.stress_inputs import ONE_SIDED, measured_difference, one_sided, resized
from parity.verdicts import Finding, Verdict, listed

COMPARED = (Group.VALUES, Group.GRADIENTS, Group.STATE)
MOST_SHOWN = 3
"""Maximum number of constants that the detail lists."""
SMALL = 1e-4
ROUGH = 0.05
"""Part of the largest entry of a leaf by which programs in bfloat16 that are fused in two ways may differ."""
RESIZED = (4.0, 0.25)
"""Factors of all numbers: where the reference overflows at one of them, it does not matter which side overflows."""
ZERO = ", where it was zero"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stressed:
    """The differences on stress inputs.

    Args:
        findings: by group of outputs.
        trials: the trial of the first finding, by group of outputs.
        runs: number of runs of each kind, by its name.
        left_out: number of runs that chose different experts, so that nothing after that was compared.
        elsewhere: constants of only one side that no run targets, as text.
    """

    findings: Mapping[str, tuple[Finding, ...]]
    trials: Mapping[str, Trial]
    runs: Mapping[str, int]
    left_out: int
    elsewhere: Sequence[str]

    @property
    def detail(self) -> str:
        """The runs, and the constants that no run targets, as text."""
        text = "as close on " + ", ".join(f"{number} {name}" for name, number in self.runs.items() if number)
        if self.left_out:
            text += f"; {self.left_out} of them chose other experts and were not compared"
        if self.elsewhere:
            text += f"; computed numbers may not have reached {listed(self.elsewhere, MOST_SHOWN)}"
        return text


def stress(evidence: Evidence) -> Stressed:
    """Runs both sides on stress inputs; runs the reference on perturbed inputs only if bits differ."""
    aims = harvest(evidence)
    starts, wanted = at_counts(evidence, aims)
    # Sides with equal checks may still propagate a NaN differently, as ``max(x, 0)`` and ``where(x > 0, x, 0)`` do.
    checks = [count_checks(side.traced.jaxpr) for side in evidence.sides]
    broken = tuple(not_finite(evidence)) if any(checks) else ()
    kinds = {
        "kinds of stress inputs": extreme_trials(evidence, aims),
        "sizes of its constants": over_scales(evidence, aims),
        "runs next to and on constants": aimed(evidence, aims),
        "integers on constants": on_constants(evidence, aims),
        "padded batches": padded(evidence, aims),
        "starts of counters" + (f" of {wanted}" if wanted > len(starts) else ""): starts,
        "batches that are not finite": broken,
    }
    found: dict[Place, Off] = {}
    runs, left_out = {}, 0
    for kind, trials in kinds.items():
        tried = [Runs(evidence, trial) for trial in trials]
        if trials is broken:
            tried = [*filter(_spoils_both, tried)]
        sizes = _largest(tried) if trials is starts else {}
        runs[kind] = len(tried)
        left_out += sum(map(_routes_apart, tried))
        for run in tried:
            for off in () if _routes_apart(run) else _beyond_rounding(run, found, sizes):
                found[off.place] = off
    for off in _unguarded(evidence, () if checks[0] == checks[1] else broken):
        found.setdefault(off.place, off)
    return Stressed(
        findings={
            group: tuple(_finding(off) for off in found.values() if off.group == group) for group in COMPARED
        },
        trials={off.group: off.trial for off in reversed(found.values())},
        runs=runs,
        left_out=left_out,
        elsewhere=aims.elsewhere,
    )


Place = tuple[Group, str]
"""Group and path of an output."""


class Off(NamedTuple):
    """A difference: the group of the output, its deviation, the noise, and the trial."""

    group: Group
    deviation: Deviation
    noise: float
    trial: Trial

    @property
    def place(self) -> Place:
        return self.group, self.deviation.path


def _routes_apart(run: Runs) -> bool:
    """True if the sides choose different experts: rounding may decide it, and later results are not comparable."""
    left, right = (side.get(Group.ROUTING, {}) for side in run.outputs)
    return any(left[path].tobytes() != right[path].tobytes() for path in left if path.endswith("/preferred"))


def _spoils_both(run: Runs) -> bool:
    """True if values are not finite, and the same entries of all results are not on both sides."""
    left, right = run.outputs
    equal = all(
        np.array_equal(_finite(array), _finite(right[group][path]))
        for group in left.keys() & right.keys()
        for path, array in left[group].items()
        if path in right[group]
    )
    return equal and not all(_finite(array).all() for array in left.get(Group.VALUES, {}).values())


def _has_no_loss(sides: tuple[Outputs, Outputs], group: Group, path: str) -> bool:
    """True if both sides have a scalar that is NaN, and NaN in the part of the state that a leaf belongs to.

    The form of a program decides which leaves such a loss reaches. If only one side has them, the other one may guard
    them.
    """
    lost = [
        {one for one, array in side.get(Group.VALUES, {}).items() if not array.ndim and np.isnan(array)}
        for side in sides
    ]
    near = [
        any(
            _top(one) == _top(path) and is_float(array) and np.isnan(array).any()
            for one, array in side[group].items()
        )
        for side in sides
    ]
    return bool(lost[0] & lost[1]) and all(near)


def _top(path: str) -> str:
    """Returns the first name of a leaf's path, after that of the step."""
    return split_step(path)[1].partition("/")[0]


def _beyond_rounding(run: Runs, known: Container[Place], sizes: Mapping[Place, float]) -> list[Off]:
    """Returns the differences that neither rounding nor the range of floats explains, of leaves that are not known.

    Such a difference is beyond the noise of the reference whose arithmetic rounds to other neighbours, and beyond that
    of narrow casts or there if both sides compute in float32. If one side overflows, the reference does not begin or
    cease to overflow with numbers of `RESIZED` size. If the case has a float64 run, it does not excuse the candidate.

    Args:
        sizes: norms of leaves to which rounding is relative, if not to each leaf's own.
    """
    changed = functools.partial(dataclasses.replace, run)

    def kept(found: Sequence[Off], *tests: Iterable[Off]) -> list[Off]:
        """Returns the differences that one of the tests yields, too."""
        still = {off.place for off in itertools.chain(*tests)} if found else set()
        return [off for off in found if off.place in still]

    found = [off for off in _differences(run, run, sizes) if off.place not in known]
    found = kept(found, _differences(run, changed(changed=rerounded_side), sizes))
    for factor in RESIZED:
        ranged = [off for off in found if off.deviation.note == ONE_SIDED]
        trial = dataclasses.replace(run.trial, move=resized(factor))
        still = kept(ranged, _differences(run, changed(trial=trial), sizes))
        found = [off for off in found if off not in ranged or off in still]
    if found and not run.evidence.read(unmeasured_rounding):
        wide, narrow = changed(changed=widened_side), changed(changed=rounded_side)
        found = kept(found, _differences(run, narrow, sizes, np.inf), _differences(wide, wide, sizes))
    return _not_arbitrated(run, found)


def _not_arbitrated(run: Runs, found: Sequence[Off]) -> list[Off]:
    """Returns the differences, unless the candidate is about as close to a float64 run as the reference is."""
    exact = run.float64 if found else Absent("")
    if isinstance(exact, Absent):
        return [*found]

    def rung(off: Off) -> Verdict:
        sides = [_leaves(outputs, off.group, run.trial) for outputs in (*run.outputs, exact)]
        return rung_beyond(off.deviation, *sides, floor={off.deviation.path: off.noise})

    return [off for off in found if rung(off) is not Verdict.ARBITRATED]


def _differences(run: Runs, noise: Runs, sizes: Mapping[Place, float], small: float = SMALL) -> Iterator[Off]:
    """Yields the differences in a trial that are beyond the noise of the reference.

    Args:
        noise: runs whose perturbed results are the noise.
        sizes: see `_beyond_rounding`.
        small: relative difference up to which the candidate's own noise may explain it.
    """
    trial = run.trial
    for group in COMPARED[: 2 if trial.saturates else 3]:
        left, right = (_leaves(side, group, trial) for side in run.outputs)
        shared = {path: array for path, array in left.items() if path in right and _counts(path, trial)}

        def noises(place: int, group: Group = group) -> Iterator[Mapping[str, np.ndarray]]:
            return (_leaves(noise.perturbed(place, 2_000 + draw), group, trial) for draw in range(DRAWS))

        own = {path: size for (of, path), size in sizes.items() if of is group}
        found = measured_difference(shared, right, functools.partial(noises, 0), own)
        found = [each for each in found if each[0].note == ONE_SIDED or not trial.empties]
        doubtful = {off.path for off, _ in found if trial.ties or off.relative <= small}
        if doubtful:  # the candidate's own noise may explain them
            others = {path: right[path] for path in shared}
            noisy = measured_difference(others, shared, functools.partial(noises, 1), own)
            doubtful -= {off.path for off, _ in noisy}
            found = [each for each in found if each[0].path not in doubtful]
        for off, size in found:
            if (
                group is Group.VALUES
                or off.note != ONE_SIDED
                or not _has_no_loss(run.outputs, group, off.path)
            ):
                yield Off(group, off, size, trial)


def _largest(runs: Sequence[Runs]) -> Mapping[Place, float]:
    """Returns the largest norm of each leaf: near the end of a schedule only the rounding of larger rates is left."""
    return {
        (group, path): max(finite_norm(_leaves(run.outputs[0], group, run.trial)[path]) for run in runs)
        for group in COMPARED
        for path, array in (_leaves(runs[0].outputs[0], group, runs[0].trial) if runs else {}).items()
        if is_float(array)
    }


def _leaves(outputs: Outputs, group: Group, trial: Trial) -> Mapping[str, np.ndarray]:
    """Returns the leaves of a group, and the parameter entries that began about zero, which keep a small step."""
    leaves = outputs.get(group, {})
    tiny = trial.tiny if group is Group.STATE else {}
    return leaves | {path + ZERO: leaves[path][mask] for path, mask in tiny.items() if path in leaves}


def _counts(path: str, trial: Trial) -> bool:
    """Returns True if an output is comparable; none is after a step on saturated gradients, because of cancellation."""
    return not trial.saturates or split_step(path)[0] in ("", "step1/")


def _finding(difference: Off) -> Finding:
    _, off, noise, trial = difference
    times = f"{off.relative / noise:.3g} x noise" if noise else "no noise explains it"
    return Finding(
        where=f"{off.path}{list(off.worst)}" if off.worst else off.path,
        reference=off.reference,
        candidate=off.candidate,
        distance=f"on stress inputs ({trial.name}): {off.note or f'relative {off.relative:.3g}'}, {times}",
    )


def _unguarded(evidence: Evidence, trials: Sequence[Trial]) -> Iterator[Off]:
    """Yields leaves with an entry that only the checks of one side keep finite, or keep from the other's number.

    A check that keeps it finite on the usual batch, too, such as that of an empty segment, is for other numbers.
    """
    usual = Runs(evidence, dataclasses.replace(usual_trial(evidence), steps=1), unchecked_side)
    # A program without its checks is fused in another way.
    rough = 0.0 if evidence.read(unmeasured_rounding) is None else ROUGH
    for trial in trials:
        run, unchecked = Runs(evidence, trial), Runs(evidence, trial, unchecked_side)
        for place, group in itertools.product((0, 1), COMPARED):
            guarded, bare = (side.get(group, {}) for side in run.outputs[:: 1 - 2 * place])
            for path in [path for path in guarded if path in bare]:
                kept, lost = _finite(guarded[path]), ~_finite(bare[path])
                other = ~_close(guarded[path], bare[path], rough)
                if not (kept & (lost | other)).any():
                    continue
                free, before = (runs.perturbed(place, 0)[group][path] for runs in (unchecked, usual))
                pair = run.outputs[0][group][path], run.outputs[1][group][path]
                if (only := kept & lost & ~_finite(free) & _finite(before)).any():
                    off = one_sided(path, tuple(map(int, np.argwhere(only)[0])), pair)
                    yield Off(group, off, 0.0, trial)
                elif (only := kept & ~lost & other & (free == bare[path])).any():
                    left, right = (np.where(only, side, 0).astype(side.dtype) for side in pair)
                    off = deviation(path, left, right)
                    if off is not None:
                        yield Off(group, off, 0.0, trial)


def _close(left: np.ndarray, right: np.ndarray, rough: float) -> np.ndarray:
    """Returns a flag for each entry: it is equal up to rounding, or up to ``rough`` of the largest entry."""
    if not is_float(left):
        return left == right
    largest = np.max(np.abs(left.astype(np.float64)), where=_finite(left), initial=0.0)
    return np.isclose(left.astype(np.float64), right.astype(np.float64), rtol=SMALL, atol=rough * largest)


def _finite(array: np.ndarray) -> np.ndarray:
    return np.isfinite(array.astype(np.float64)) if is_float(array) else np.ones(array.shape, bool)
