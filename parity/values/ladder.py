"""Ladder of rungs for values: bitwise, within the noise floor, arbitrated by float64, or failed; also by layer."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.builds.tree import same_bits, unlike_entries
from parity.verdicts import (
    ANY_RUNG,
    SIDES,
    ChannelResult,
    Finding,
    Requirement,
    Row,
    Verdict,
    grouped,
    weakest,
)

FLOOR_FACTOR = 10.0
"""A leaf is within the floor up to this multiple of its measured noise."""

ARBITRATION = 2.0
"""Bound on the candidate's error against the float64 reference, as a multiple of the reference's error."""

TRUSTED = 0.1
"""A float64 run is trusted only if the reference is within this relative distance of it."""

FARTHEST = (1 + ARBITRATION) * TRUSTED / (1 - TRUSTED)
"""Largest relative deviation that a trusted float64 run can arbitrate, by the triangle inequality."""

ZERO = 1e-3
"""A leaf holds rounding alone if its float64 run is below this part of its norm."""

MINOR = " (minor)"
"""End of the name, in a floor, of the minor entries of a leaf."""

FILL = 2.0**-8
"""Largest size of other numbers in parts of a mask's; a floor in parts of the mask's number would hide their errors."""

Flat = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deviation:
    """Deviation of one leaf of the candidate from the reference.

    Args:
        relative: Frobenius norm of the difference over the reference's; inf if it is not finite.
        minor: the same of the `minor` entries; 0 if there are none.
        worst: index of the largest difference.
        reference, candidate: the two numbers there.
        note: differences that norms do not show, such as a shape; else empty.
    """

    path: str
    relative: float
    minor: float = 0.0
    worst: tuple[int, ...] = ()
    reference: str = ""
    candidate: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Absent:
    """A run that does not exist, and the reason, as text."""

    why: str


@dataclasses.dataclass(frozen=True)
class Rounding:
    """Noise of programs that compute in bfloat16 or float16.

    Args:
        noise: noise of the leaves whose difference such rounding explains; empty if there are none.
        detail: the reason, as text; empty if the programs do not compute in these types.
    """

    noise: Mapping[str, float] = dataclasses.field(default_factory=dict)
    detail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """Measurements for the lower rungs; each is called only if the rung above did not hold.

    Args:
        floor: measures ``{path: relative noise}`` of the reference.
        rounding: the noise of the reference's narrow types; called if a leaf is beyond its floor.
        exact: the reference's values in float64, or the reason why they are absent; None if the case has no such run.
        required: rungs that the case accepts.
        each: True if each leaf must be arbitrated, because the case may waive others.
    """

    floor: Callable[[], Mapping[str, float]]
    exact: Callable[[], Flat | Absent] | None
    required: Requirement = ANY_RUNG
    rounding: Callable[[], Rounding] = Rounding
    each: bool = False


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def _wide(array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _relative(error: float, scale: float) -> float:
    return error / scale if scale > 0 else (0.0 if error == 0 else float("inf"))


def _worst(reference: np.ndarray, candidate: np.ndarray, difference: np.ndarray) -> tuple[int, ...]:
    """Returns the index of the largest difference among the entries whose bits differ."""
    distance = np.where(unlike_entries(reference, candidate), np.nan_to_num(difference, nan=np.inf), -1.0)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(distance)), reference.shape))


def _shown(number: np.generic) -> str:
    return str(number) if number.dtype.kind in "iub" else f"{number:.9g}"


def _magnitudes(array: np.ndarray) -> np.ndarray:
    """Returns the sizes of all entries, 0 for those that are not finite."""
    sizes = np.abs(_wide(array))
    finite = np.isfinite(sizes)
    return sizes if finite.all() else np.where(finite, sizes, 0)


def filled(array: np.ndarray) -> np.ndarray:
    """Returns the entries that hold one number, much larger than all others, such as the ``-1e9`` of a mask."""
    sizes = _magnitudes(array)
    most = sizes.max(initial=0)
    largest = sizes == most
    rest = sizes.max(initial=0, where=~largest)
    return largest & (largest.sum() > 1) & (0 < rest < FILL * most)


def minor(array: np.ndarray) -> np.ndarray:
    """Returns the entries that are much smaller than the largest, if at least half of those that are not zero are.

    Entries that a mask fills do not count.
    """
    sizes = _magnitudes(array)
    sizes = np.where(filled(sizes), 0, sizes)
    small = (sizes > 0) & (sizes < FILL * sizes.max(initial=0))
    return small & (2 * small.sum() >= np.count_nonzero(sizes))


def deviation(
    path: str, reference: np.ndarray, candidate: np.ndarray, place: bool = True
) -> Deviation | None:
    """Returns the deviation of a leaf, with the worst entry unless ``place`` is False; None if it has the same bits."""
    if same_bits(reference, candidate):
        return None
    for what in ("shape", "dtype"):
        sides = [getattr(side, what) for side in (reference, candidate)]
        if sides[0] != sides[1]:
            texts = dict(zip(SIDES, map(str, sides), strict=True))
            return Deviation(path=path, relative=float("inf"), **texts, note=f"{what} differs")
    with np.errstate(invalid="ignore", over="ignore"):
        left, right = _wide(reference), _wide(candidate)
        holes, others = ~np.isfinite(left), ~np.isfinite(right)
        comparable = np.array_equal(holes, others) and np.array_equal(
            left[holes], right[holes], equal_nan=True
        )
        if comparable:  # the same NaN, infinities and fills on both sides: the other entries decide
            fills = filled(reference)
            same = holes | (fills & np.array_equal(left[fills], right[fills]))
            left, right = (np.where(same, 0, each) if same.any() else each for each in (left, right))
        share = np.abs(right - left)
        relative, small, least = _relative(_norm(share), _norm(left)), minor(left), 0.0
        if small.any():
            least = _relative(_norm(share[small]), _norm(left[small]))
            ratio = _relative(_norm(left), _norm(left[small]))
            share = np.where(small, share * (ratio if np.isfinite(ratio) else 1.0), share)
    worst = _worst(reference, candidate, share) if place else ()
    shown = [_shown(side[worst]) if place else "" for side in (reference, candidate)]
    return Deviation(
        path=path,
        relative=relative if np.isfinite(relative) else float("inf"),
        minor=least if np.isfinite(least) else float("inf"),
        worst=worst,
        **dict(zip(SIDES, shown, strict=True)),
        note="" if comparable else "values that are not finite",
    )


def unlike_leaves(reference: Flat, candidate: Flat, there: str) -> Iterator[Deviation]:
    """Yields the leaves that differ in any bit, or that only one side has.

    Args:
        there: text of the side that has a leaf, such as ``given``.
    """
    for path in sorted({*reference, *candidate}):
        has = [path in side for side in (reference, candidate)]
        if not all(has):
            left, right = (there if held else f"not {there}" for held in has)
            yield Deviation(
                path=path, relative=float("inf"), reference=left, candidate=right, note="on one side only"
            )
        elif (off := deviation(path, np.asarray(reference[path]), np.asarray(candidate[path]))) is not None:
            yield off


def climb(reference: Flat, candidate: Flat, judge: Judge) -> ChannelResult:
    """Returns the highest rung that all leaves hold, with the leaves that miss it: failed first, worst first.

    Integer, bool and key leaves have no floor: any difference fails.

    Args:
        reference, candidate: host arrays under the same paths.
    """
    off = [
        found
        for path in sorted(reference)
        if (found := deviation(path, reference[path], candidate[path])) is not None
    ]
    if not off:
        detail = "; ".join([f"{len(reference)} leaves", *_unmet(Verdict.BITWISE, judge)])
        verdict = Verdict.BITWISE if judge.required.met_by(Verdict.BITWISE) else Verdict.FAILED
        return ChannelResult(verdict=verdict, detail=detail)
    floor = judge.floor()
    failing = [found for found in off if not is_within(found, reference[found.path], floor)]
    has_floor = {found.path: _has_floor(found, reference[found.path]) for found in failing}
    rounding = judge.rounding() if any(has_floor.values()) else Rounding()
    floor = {**floor, **rounding.noise}
    in_floors = {found.path: distance_in_floors(found, floor) for found in off}
    failing = [found for found in failing if not is_within(found, reference[found.path], floor)]
    failing.sort(key=lambda found: in_floors[found.path], reverse=True)
    near = [
        has_floor[found.path]
        and found.relative <= max(FARTHEST, _farthest_rounding(floor.get(found.path, 0.0)))
        for found in failing
    ]
    truth: Flat | Absent = {}
    if any(near) and judge.exact:
        truth = judge.exact() if near[0] or judge.each else Absent("the worst leaf fails without one")
    exact = {} if isinstance(truth, Absent) else truth
    rungs = {found.path: Verdict.FLOOR for found in off}
    rungs |= {found.path: rung_beyond(found, reference, candidate, exact, floor) for found in failing}
    lowest = weakest(rungs.values())
    off.sort(key=lambda found: (rungs[found.path] is Verdict.FAILED, in_floors[found.path]), reverse=True)
    beyond = [found for found in off if not judge.required.met_by(rungs[found.path])]
    others = f" and {len(off) - len(beyond)} within noise" if 0 < len(beyond) < len(off) else ""
    shown = beyond or off
    detail = (
        f"{len(shown)} of {len(reference)} leaves differ{others}, worst {max(in_floors.values()):.3g} x noise"
    )
    absent = [f"not arbitrated, no float64 run: {truth.why}"] if isinstance(truth, Absent) else []
    return ChannelResult(
        verdict=lowest if judge.required.met_by(lowest) else Verdict.FAILED,
        detail="; ".join([detail, *filter(None, [rounding.detail]), *_unmet(lowest, judge), *absent]),
        findings=tuple(_finding(found, in_floors[found.path], rungs[found.path], judge) for found in shown),
        tables={
            "leaves": [_row(found, in_floors[found.path], rungs[found.path]) for found in off],
            "layers": layer_table(reference, in_floors, rungs),
        },
    )


def _has_floor(found: Deviation, reference: np.ndarray) -> bool:
    return bool(jnp.issubdtype(reference.dtype, np.inexact)) and not found.note


def is_within(found: Deviation, reference: np.ndarray, floor: Mapping[str, float]) -> bool:
    """True if a leaf has a floor and is within it."""
    return _has_floor(found, reference) and not _beyond(found, floor)


def distance_in_floors(found: Deviation, floor: Mapping[str, float]) -> float:
    """Returns the deviation of a leaf, or that of its minor entries if it is larger, as a multiple of its noise."""
    return max(_relative(size, floor.get(path, 0.0)) for path, size in _sizes(found))


def _sizes(found: Deviation) -> list[tuple[str, float]]:
    """Returns the relative deviations of a leaf and of its minor entries, under their names in a floor."""
    return [(found.path, found.relative), (found.path + MINOR, found.minor)]


def _beyond(found: Deviation, floor: Mapping[str, float]) -> list[str]:
    """Returns the names in a floor of the leaf and of its minor entries, if they are beyond it."""
    return [
        path
        for path, size in _sizes(found)
        if not (np.isfinite(noise := floor.get(path, 0.0)) and size <= FLOOR_FACTOR * noise)
    ]


def _farthest_rounding(noise: float) -> float:
    """Returns the bound on the relative deviation of a leaf that holds rounding alone, such as a gradient of zero.

    A square of such a gradient, as in Adam's second moment, deviates by the square of its factor.
    """
    return (FLOOR_FACTOR * noise) ** 2 if np.isfinite(noise) else 0.0


def rung_beyond(
    found: Deviation, reference: Flat, candidate: Flat, exact: Flat, floor: Mapping[str, float]
) -> Verdict:
    """Returns the rung of a leaf beyond its floor, or without one."""
    if found.path not in exact or not _has_floor(found, reference[found.path]):
        return Verdict.FAILED
    sides = [_wide(side[found.path]) for side in (reference, candidate, exact)]
    parts = {found.path: ..., found.path + MINOR: minor(sides[0])}
    arbitrated = all(
        _is_arbitrated([side[parts[name]] for side in sides], size, floor.get(name, 0.0))
        for name, size in _sizes(found)
        if name in _beyond(found, floor)
    )
    return Verdict.ARBITRATED if arbitrated else Verdict.FAILED


def _is_arbitrated(sides: Sequence[np.ndarray], relative: float, noise: float) -> bool:
    """True if the candidate is about as close to the float64 run as the reference is, or both hold rounding alone."""
    reference, candidate, truth = sides
    errors = _norm(candidate - truth), _norm(reference - truth)
    # A run that draws other random numbers is no reference: both sides are equally far from it.
    trusted = errors[1] <= TRUSTED * _norm(truth)
    if trusted and np.isfinite(errors).all() and errors[0] <= ARBITRATION * errors[1]:
        return True
    return _norm(truth) <= ZERO * _norm(reference) and relative <= _farthest_rounding(noise)


def _unmet(rung: Verdict, judge: Judge) -> list[str]:
    """Returns the requirement that a rung misses; empty if the rung meets it or is `FAILED`."""
    missed = rung is not Verdict.FAILED and not judge.required.met_by(rung)
    return [f"rung {rung} where {judge.required} is required"] if missed else []


def _known(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _row(found: Deviation, in_floors: float, rung: Verdict) -> Row:
    numbers = {"relative": found.relative, "floors": in_floors}
    known = {name: _known(number) for name, number in numbers.items()}
    return {"leaf": found.path, **known, "rung": str(rung), "note": found.note}


def _finding(found: Deviation, in_floors: float, rung: Verdict, judge: Judge) -> Finding:
    where = f"{found.path}{list(found.worst)}" if found.worst else found.path
    (reached,) = _unmet(rung, judge) or [f"rung {rung}"]
    small = f" and {found.minor:.3g} in small entries" if found.minor > found.relative else ""
    distance = found.note or f"relative {found.relative:.3g}{small}, {in_floors:.3g} x noise, {reached}"
    return Finding(
        where=where,
        reference=found.reference,
        candidate=found.candidate,
        distance=distance,
        leaf=found.path,
    )


STEP = re.compile(r"step\d+")
NUMBERED = re.compile(r"(.*?)[_.-]?(\d+)")
MOMENTS = frozenset({"mu", "nu", "trace"})


@dataclasses.dataclass(frozen=True)
class Place:
    """Position of a leaf in the model.

    Args:
        series: group of the leaf, such as ``params`` or ``step1/opt_state/0/mu``; plots draw one line each.
        stack: the layers it is in, or the module outside of them.
        number: number of the layer; None outside of layers, and if one leaf holds a whole stack.
    """

    series: str
    stack: str
    number: int | None


def place_of(path: str) -> Place:
    """Returns the layer of a leaf, determined from its path alone.

    A layer is a numbered module that contains modules, or a numbered module of the model itself:
    ``layers_3/mlp/kernel``, ``layers/3/kernel``, ``Dense_0/kernel``, but not ``wi_0`` of ``layers/mlp/wi_0/kernel``.
    """
    parts = path.split("/")
    start = int(STEP.fullmatch(parts[0]) is not None)
    moment = next((at for at, part in enumerate(parts) if part in MOMENTS), start)
    rest = parts[moment + 1 :]
    series = "/".join(parts[: moment + 1])
    for at, part in enumerate(rest):
        found = NUMBERED.fullmatch(part)
        listed = at == 1 and part.isdigit()  # the ``3`` of ``layers/3/kernel``
        if not found or (at and not listed and len(rest) - at <= 2):
            continue
        name = "/".join((*rest[:at], *filter(None, found.groups()[:1])))
        if name:
            return Place(series, name, int(found[2]))
    outside = next((part for part in rest if not part.isdigit()), "")
    return Place(series, outside, None)


def layer_table(paths: Iterable[str], floors: Mapping[str, float], rungs: Mapping[str, Verdict]) -> list[Row]:
    """Returns a row for each layer: its leaves, the number that differ, and the worst deviation.

    Args:
        floors: deviation of each differing leaf as a multiple of its noise; in a row None if it is not finite.
        rungs: rung of each differing leaf; leaves that are not in here have the same bits.
    """
    groups = grouped(paths, place_of)
    ordered = sorted(groups, key=lambda one: (one.series, one.number is None, one.stack, one.number or 0))
    return [_layer_row(place, groups[place], floors, rungs) for place in ordered]


def _layer_row(
    place: Place, paths: Collection[str], floors: Mapping[str, float], rungs: Mapping[str, Verdict]
) -> Row:
    differing = [path for path in paths if path in rungs]
    # Failed first: a float64 run may excuse the larger of two deviations.
    worst = max(differing, key=lambda path: (rungs[path] is Verdict.FAILED, floors[path]), default="")
    return {
        **dataclasses.asdict(place),
        "leaves": len(paths),
        "differ": len(differing),
        "floors": _known(floors[worst]) if worst else None,
        "rung": str(weakest(rungs[path] for path in differing)) if differing else None,
        "leaf": worst,
    }
