"""Leaves grouped by layer: the largest deviation of each layer of a model."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping

from parity.verdicts import Row, Verdict, weakest

__all__ = ["Place", "layer_table", "place_of"]

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

    Args:
        path: path of a leaf, steps and roles first.
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


def layer_table(
    paths: Iterable[str], floors: Mapping[str, float | None], rungs: Mapping[str, Verdict]
) -> list[Row]:
    """Returns a row for each layer: its leaves, the number that differ, and the worst deviation.

    Args:
        paths: all leaves that were compared.
        floors: deviation of each differing leaf as a multiple of its noise; None if there is no such number.
        rungs: rung of each differing leaf; leaves that are not in here have the same bits.

    Returns:
        ``floors`` is None if no leaf differs, and if the worst deviation is not a finite number; ``differ``
        distinguishes the two.
    """
    groups: dict[Place, list[str]] = {}
    for path in paths:
        groups.setdefault(place_of(path), []).append(path)
    ordered = sorted(groups, key=lambda one: (one.series, one.number is None, one.stack, one.number or 0))
    return [_row(place, groups[place], floors, rungs) for place in ordered]


def _row(
    place: Place, paths: Collection[str], floors: Mapping[str, float | None], rungs: Mapping[str, Verdict]
) -> Row:
    def size(path: str) -> float:
        found = floors[path]
        return float("inf") if found is None else found

    differing = [path for path in paths if path in rungs]
    # Failed first: a float64 run may excuse the larger of two deviations.
    worst = max(differing, key=lambda path: (rungs[path] is Verdict.FAILED, size(path)), default=None)
    return {
        "series": place.series,
        "stack": place.stack,
        "number": place.number,
        "leaves": len(paths),
        "differ": len(differing),
        "floors": None if worst is None else floors[worst],
        "rung": str(weakest(rungs[path] for path in differing)) if differing else None,
        "leaf": worst or "",
    }
