"""Logical axes of paired leaves: a difference that the transform does not explain is a finding."""

from collections.abc import Mapping, Sequence

from parity.builds.tree import Leaf
from parity.builds.weights.map import Entry
from parity.verdicts import Finding

__all__ = ["compare_axes"]


def compare_axes(entry: Entry, sides: Sequence[Mapping[str, Leaf]]) -> list[Finding]:
    """Finds leaves of one map entry whose logical axes differ beyond the effect of the transform."""
    names = [
        [side[path].logical_axes for path in paths]
        for side, paths in zip(sides, (entry.reference, entry.candidate), strict=True)
    ]
    if all(axes is None for axes in (*names[0], *names[1])):
        return []
    expected = (
        None if None in names[0] else entry.transform.axes([axes for axes in names[0] if axes is not None])
    )
    if None not in names[0] and None not in names[1] and expected is None:
        return []
    found = zip(entry.candidate, expected or names[0], names[1], strict=False)
    return [
        Finding(
            where=path,
            reference=f"logical axes {wanted}",
            candidate=f"logical axes {got}",
            cause="axis names swapped, missing or left on a stacked axis",
            next_step="compare the parameter's declaration on both sides",
        )
        for path, wanted, got in found
        if wanted != got
    ]
