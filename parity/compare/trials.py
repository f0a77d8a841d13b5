"""States and batches on which both sides of an unproved case run."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from parity.builds.build import SEED, Group
from parity.builds.tree import Role
from parity.compare.aims import MARGIN, Aims, Place
from parity.compare.evidence import Evidence
from parity.compare.runs import Flat, Trial, judged_runs
from parity.values.noise import is_float, is_mask
from parity.values.stress_inputs import EXTREMES, perturb

MOST_CONSTANTS, MOST_SCALES, MOST_AIMED, MOST_MARKS, MOST_COUNTS, MOST_SPOILT = 24, 4, 6, 4, 40, 16
FURTHER = 10
"""Distance from the usual seeds to those of further batches."""
BELOW = 32.0
"""Factor by which numbers are below a constant so that their sum is about as small."""
AIMED = 0.25
"""Share of a leaf's entries that are set to constants; at least one entry."""
SIDES = (-1e-2, -1e-3, 1e-3, 1e-2)
"""Relative distances of entries from a constant."""
TINY = 1e-30
"""Size of parameters that are about zero: at zero itself, gradients of `relu` and `maximum` differ."""


def extreme_trials(evidence: Evidence, aims: Aims) -> Iterator[Trial]:
    """Yields trials with numbers over decades, large and tiny ones, zeros and ties."""
    flats = {False: evidence.state, True: evidence.reference.build.inputs(SEED)}

    def constants(inputs: bool) -> list[float]:
        """Returns the constants used with floats of the state, or of the batch; bounds of counters are excluded."""
        found = {
            number
            for (of_inputs, path), each in aims.numbers.items()
            if of_inputs is inputs and is_float(flats[inputs][path])
            for number in each
        }
        kept = sorted(number for number in {*found, *aims.scales} if number and 1e-12 < abs(number) < 1e12)
        return kept[:: max(1, len(kept) // MOST_CONSTANTS)]

    of_state, of_inputs = constants(False), constants(True)
    for seed, kind in enumerate(EXTREMES, SEED + FURTHER):
        yield Trial(
            name=kind.name,
            seed=seed,  # further batches cost nothing more, and one alone may hide which of its integers is read
            state=kind.state(evidence.state, evidence.builds[0].leaves, of_state),
            alter=functools.partial(kind.batch, constants=of_inputs),
            steps=1 if kind.edges else None,  # a second step on saturated gradients amplifies rounding
            move=perturb,
            saturates=kind.saturates,
        )


def over_scales(evidence: Evidence, aims: Aims) -> Iterator[Trial]:
    """Yields trials of about the size of each constant that computed numbers are used with, and of its square root."""
    params = [path for path, leaf in evidence.builds[0].leaves.items() if leaf.role is Role.PARAMS]
    inputs = list(evidence.reference.build.abstract_inputs)
    for scale in aims.scales[:MOST_SCALES]:
        root, least = math.sqrt(scale), scale / BELOW
        moments = _with_moments(evidence, lambda rng, shape, scale=scale: scale ** rng.uniform(1, 2, shape))
        for words, size, state, leaves, entries in (
            ("inputs", root, evidence.state, [], inputs),
            ("parameters", root, evidence.state, params, []),
            ("everything", least, moments, params, inputs),
        ):
            yield Trial(
                name=f"{words} of size {size:.3g}",
                state=_sized(state, leaves, size),
                alter=functools.partial(_sized, paths=entries, size=size),
                move=perturb,
            )


def _sized(flat: Flat, paths: Sequence[str], size: float) -> Flat:
    """Returns arrays of which some floats have a root mean square of ``size``; zeros and infinite ones stay."""
    changed = dict(flat)
    for path in [path for path in paths if is_float(flat[path]) and flat[path].size]:
        wide = flat[path].astype(np.float64)
        own = float(np.sqrt(np.mean(np.square(wide))))
        if own and math.isfinite(own):
            changed[path] = (wide * (size / own)).astype(flat[path].dtype)
    return changed


def aimed(evidence: Evidence, aims: Aims) -> Iterator[Trial]:
    """Yields trials with entries next to every constant used with floats of the state and the batch, then on it."""
    flats = {False: evidence.state, True: evidence.reference.build.inputs(SEED)}
    space = {
        (inputs, path): _capacity(array)
        for inputs, flat in flats.items()
        for path, array in flat.items()
        if is_float(array) and array.size
    }
    for ties in (False, True):
        sides = (0.0,) if ties else SIDES
        numbers = {
            place: [number * (1 + side) for side in sides for number in found if number]
            for place, found in aims.numbers.items()
        }
        needed = [math.ceil(len(each) / space[place]) for place, each in numbers.items() if place in space]
        for iteration in range(min(MOST_AIMED, max(needed, default=0))):
            state = _aimed(evidence.state, numbers, False, iteration)
            alter = functools.partial(_aimed, numbers=numbers, inputs=True, iteration=iteration)
            name = f"entries {'on' if ties else 'next to'} constants of the programs"
            yield Trial(name=name, state=state, alter=alter, ties=ties)


def _capacity(array: np.ndarray) -> int:
    return max(1, int(array.size * AIMED))


def _aimed(flat: Flat, numbers: Mapping[Place, list[float]], inputs: bool, iteration: int) -> Flat:
    changed = dict(flat)
    for path, array in flat.items():
        wanted = numbers.get((inputs, path), ())
        if is_float(array) and array.size and wanted:
            space = _capacity(array)
            chosen = wanted[iteration * space : (iteration + 1) * space] or wanted[:space]
            places = np.random.default_rng(17).permutation(array.size)[: len(chosen)]
            entries = np.array(array).reshape(-1)
            entries[places] = np.asarray(chosen).astype(array.dtype)
            changed[path] = entries.reshape(array.shape)
    return changed


def padded(evidence: Evidence, aims: Aims) -> Iterator[Trial]:
    """Yields trials with the second half of each second row padded: masks with the other bit, integers with a mark.

    Only what the batch does not have is tried. In the last trials masks hide everything, and everything in a row.
    """
    batch = evidence.reference.build.inputs(SEED)
    wanted = {path: _missing(np.asarray(array), aims.marks.get(path, ())) for path, array in batch.items()}
    for iteration in range(min(MOST_MARKS, max(map(len, wanted.values()), default=0))):
        now = {path: marks[iteration % len(marks)] for path, marks in wanted.items() if marks}
        name = f"padding, {', '.join(f'{path} = {mark:g}' for path, mark in now.items())}"
        yield Trial(
            name=name, state=dict(evidence.state), alter=functools.partial(_pad, marks=now), pads=True
        )
    masks = [path for path, array in batch.items() if is_mask(array) and array.ndim and array.any()]
    rows = [path for path in masks if batch[path].ndim > 1]
    for words, paths, entries in (("", masks, slice(None)), ("a row of ", rows, slice(1))):
        if paths:
            alter = functools.partial(_filled, paths=paths, entries=entries, number=0)
            name = f"{words}{', '.join(paths)} = 0"
            yield Trial(name=name, state=dict(evidence.state), alter=alter, pads=True, empties=True)


def _missing(array: np.ndarray, marks: Sequence[float]) -> list[float]:
    """Returns the bits that a mask does not have, or the marks that an array of integers does not have."""
    if not array.ndim or not array.size:
        return []
    if is_mask(array):
        return [bit for bit in (0.0, 1.0) if not (array == bit).any()]
    return [
        mark
        for mark in marks
        if array.dtype.kind in "iu" and not (array == mark).any() and _fits(mark, array)
    ]


def _fits(mark: float, array: np.ndarray) -> bool:
    limits = np.iinfo(array.dtype)
    return mark.is_integer() and limits.min <= mark <= limits.max


def _pad(batch: Flat, marks: Mapping[str, float]) -> Flat:
    changed = {path: np.array(array) for path, array in batch.items()}
    for path, mark in marks.items():
        rows = changed[path].reshape(-1, changed[path].shape[-1])
        rows[::2, rows.shape[1] // 2 :] = mark
    return changed


def _filled(flat: Flat, paths: Sequence[str], entries: Any, number: float) -> Flat:
    """Returns arrays of which some have a number in some of their entries."""
    changed = {path: np.array(array) for path, array in flat.items()}
    for path in paths:
        changed[path][entries] = number
    return changed


def on_constants(evidence: Evidence, aims: Aims) -> Iterator[Trial]:
    """Yields trials whose integers equal constants that they are used with, or the numbers next to these.

    Such a number takes the place of the next smaller number of the batch: equal entries stay equal and sorted ones
    sorted, so that positions, segments and lengths stay what they are. The range of the batch stays, too, unless a
    program clamps: it expects numbers beyond.
    """
    moves = {
        path: _onto(array, aims.numbers.get((True, path), ()), aims.clamps.get(path, ()))
        for path, array in evidence.reference.build.inputs(SEED).items()
        if array.dtype.kind in "iu" and array.ndim and array.size
    }
    for iteration in range(max(map(len, moves.values()), default=0)):
        now = {path: each[iteration] for path, each in moves.items() if iteration < len(each)}
        numbers = (f"{path} = {', '.join(map(str, sorted(each.values())))}" for path, each in now.items())
        name, alter = f"integers on constants, {', '.join(numbers)}", functools.partial(_moved, moves=now)
        yield Trial(name=name, state=dict(evidence.state), alter=alter)


def _onto(array: np.ndarray, constants: Sequence[float], clamps: Sequence[float]) -> list[dict[int, int]]:
    """Returns for each trial the numbers that take the place of others; constants first, then those next to them."""
    present = np.unique(array)
    low, *_, high = sorted([*present[[0, -1]].tolist(), *(each for each in clamps if _fits(each, array))])
    wanted = sorted({int(each) for each in constants if each.is_integer()})
    around = [each + step for step in (0, -1, 1) for each in wanted]  # `> 4` is `>= 5`
    trials: list[dict[int, int]] = []
    for number in dict.fromkeys(each for each in around if low <= each <= high and each not in present):
        smaller = int(present[max(np.searchsorted(present, number) - 1, 0)])
        free = next((each for each in trials if smaller not in each), None)
        if free is not None:
            free[smaller] = number
        elif len(trials) < MOST_AIMED:
            trials.append({smaller: number})
    return trials


def _moved(batch: Flat, moves: Mapping[str, Mapping[int, int]]) -> Flat:
    """Returns a batch with each entry of an input replaced by another number, or kept."""
    return {**batch} | {
        path: np.vectorize(lambda entry, new=new: new.get(entry, entry), otypes=[batch[path].dtype])(
            batch[path]
        )
        for path, new in moves.items()
    }


def not_finite(evidence: Evidence) -> Iterator[Trial]:
    """Yields trials with a NaN, then an infinity, in the float inputs, and with a NaN in each parameter.

    No parameter becomes infinite: none of a trained model is, and equal formulas part there.
    """

    def floats(flat: Flat) -> list[str]:
        return [path for path, array in sorted(flat.items()) if is_float(array) and array.ndim]

    first = (..., slice(1))
    inputs = floats(evidence.reference.build.inputs(SEED))
    for number in (np.nan, np.inf) if inputs else ():
        alter = functools.partial(_filled, paths=inputs, entries=first, number=number)
        yield Trial(name=f"inputs with {number}", state=dict(evidence.state), alter=alter)
    leaves = evidence.builds[0].leaves
    params = [path for path in floats(evidence.state) if leaves[path].role is Role.PARAMS]
    for path in params[:MOST_SPOILT]:
        yield Trial(name=f"{path} with nan", state=_filled(evidence.state, [path], first, np.nan))


def _with_moments(
    evidence: Evidence, size: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the state with positive moments of some size."""
    rng, state = np.random.default_rng(19), dict(evidence.state)
    for path in sorted(state):
        array = state[path]
        if evidence.builds[0].leaves[path].role is Role.OPTIMIZER and is_float(array) and array.ndim:
            limit = float(jnp.finfo(array.dtype).max)
            state[path] = np.minimum(size(rng, array.shape), limit).astype(array.dtype)
    return state


def at_counts(evidence: Evidence, aims: Aims) -> tuple[list[Trial], int]:
    """Returns trials with counters at 0, 1, around each constant used with a counter, and halfway between those.

    Counters that advance together start together. Moments are large, so that an optimizer's step exceeds the rounding
    error of the parameters. A part of each parameter is about zero.

    Returns:
        The trials, and their number without the bound.
    """
    groups = _groups(evidence, aims)
    lists = [_counts(evidence, aims, places) for places in groups]
    if not lists:
        return [], 0
    wanted = max(map(len, lists))
    runs = list(itertools.product(*lists))
    if len(runs) > MOST_COUNTS:
        runs = [
            tuple(each[iteration % len(each)] for each in lists)
            for iteration in range(min(wanted, MOST_COUNTS))
        ]
    state = _with_moments(evidence, lambda rng, shape: 10.0 ** rng.uniform(0, 10, shape))
    tiny = {
        path: np.random.default_rng(23).random(state[path].shape) < AIMED
        for path, leaf in evidence.builds[0].leaves.items()
        if leaf.role is Role.PARAMS and is_float(state[path]) and state[path].ndim > 1
    }
    for path, mask in tiny.items():
        state[path] = np.where(mask, TINY, state[path]).astype(state[path].dtype)
    trials = []
    for counts in runs:
        started = {place: count for places, count in zip(groups, counts, strict=True) for place in places}
        begin = functools.partial(_started, started=started, wraps=aims.wraps)
        trials.append(
            Trial(
                name=f"counters at {', '.join(f'{count:,}' for count in counts)}",
                state=begin(state, inputs=False),
                alter=functools.partial(begin, inputs=True),
                tiny=tiny,
            )
        )
    return trials, max(wanted, len(runs))


def _started(flat: Flat, inputs: bool, started: Mapping[Place, int], wraps: Mapping[str, int]) -> Flat:
    changed = dict(flat)
    for path, array in flat.items():
        count = started.get((inputs, path))
        if count is not None:
            limit = int(np.iinfo(array.dtype).max) - MARGIN
            divisor = 0 if inputs else wraps.get(path, 0)
            changed[path] = np.full_like(array, min(count % divisor if divisor else count, limit))
    return changed


def _groups(evidence: Evidence, aims: Aims) -> list[list[Place]]:
    """Returns the counters of state and batch, grouped if they begin and advance together."""
    leaves, outputs = evidence.builds[0].leaves, evidence.read(judged_runs).outputs[0].get(Group.STATE, {})
    groups: dict[tuple, list[Place]] = {}
    batch = evidence.reference.build.inputs(SEED)
    for inputs, path in sorted(aims.read):
        array = (batch if inputs else evidence.state)[path]
        role = None if inputs else leaves[path].role
        if not _counts_something(array) or role in (Role.PARAMS, Role.RNG) or (inputs and array.ndim):
            continue
        steps = (path, f"step1/{path}", f"step{evidence.reference.program.steps}/{path}")
        after = [outputs[each] for each in steps if each in outputs]
        later = (inputs and path, *(int(np.ravel(each)[0]) for each in after if each.size and not inputs))
        groups.setdefault((int(np.ravel(array)[0]), later), []).append((inputs, path))
    return list(groups.values())


def _counts_something(array: np.ndarray) -> bool:
    """Returns True for an integer, or an array of equal ones as layers or replicas keep."""
    return (
        array.dtype.kind in "iu"
        and array.ndim <= 1
        and bool(array.size)
        and bool((array == array.flat[0]).all())
    )


def _counts(evidence: Evidence, aims: Aims, places: Sequence[Place]) -> list[int]:
    """Returns the starting values of counters: 0, 1, around each constant, and halfway between constants."""
    batch = evidence.reference.build.inputs(SEED)
    dtypes = [(batch if inputs else evidence.state)[path].dtype for inputs, path in places]
    limit = min(int(np.iinfo(dtype).max) for dtype in dtypes) - MARGIN
    found = dict.fromkeys(number for place in places for number in aims.numbers.get(place, ()))
    edges = [number for number in found if 0 <= number <= limit]
    around = [
        int(base) + step
        for number in edges
        for base in (math.floor(number), math.ceil(number))
        for step in (-1, 0, 1)
    ]
    ordered = sorted({0.0, *edges})
    after = ordered[-1] + (ordered[-1] - ordered[-2]) / 2 if len(ordered) > 1 else 0.0
    halfway = [min(limit, int(after)), *(int((low + high) / 2) for low, high in itertools.pairwise(ordered))]
    wrapped = [aims.wraps[path] for inputs, path in places if not inputs and path in aims.wraps]
    top = min(wrapped) if len(wrapped) == len(places) else limit + 1
    top = min([top, *(int(aims.ends[place]) + 1 for place in places if place in aims.ends)])
    counts = dict.fromkeys(count for count in (0, 1, *around, *halfway) if 0 <= count < top)
    return list(counts)
