"""Logical axes of paired leaves: a difference that neither the transform nor the rules explain is a finding."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flax import linen

from parity.builds.tree import Leaf, Role
from parity.builds.weights.map import Entry
from parity.cases.shared import mesh_axes
from parity.channels.consequences import causes_first
from parity.channels.results import STACKED, with_sources
from parity.compare.evidence import Evidence
from parity.verdicts import Finding

Axes = tuple[str | None, ...] | None
SUPPORT = 2
"""Number of parameters that must agree on a rule which the pair does not give."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AxisNames:
    """The relation of the axis names of both sides, if one side declares logical axes and the other mesh axes.

    Args:
        rules: logical axis -> mesh axes; empty if both sides use names of one kind, which must then be equal.
        inferred: True if the pair gives no rules, and those here follow from the leaves.
        unnamed: True if the reference names no axis and the pair gives no rules, so that the candidate may name any.
    """

    rules: tuple[tuple[str, Any], ...] = ()
    inferred: bool = False
    unnamed: bool = False

    def agree(self, left: Axes, right: Axes) -> bool:
        """Returns True if two leaves have equal names, or equal mesh axes by the rules."""
        return (
            self.unnamed
            or left == right
            or (bool(self.rules) and self._resolved(left) == self._resolved(right))
        )

    def difference(self, left: Axes, right: Axes) -> str:
        """Returns the likeliest reason why the names of two leaves do not agree."""
        lone = {*(left or ()), *(right or ())} - {name for name, _ in self.rules} - {None}
        if self.rules and lone:
            return f"no axis rule names {', '.join(sorted(map(str, lone)))}"
        return "axis names swapped, missing or left on a stacked axis"

    def _resolved(self, axes: Axes) -> tuple:
        spec = linen.spmd.logical_to_mesh_axes(axes or (), self.rules) or ()
        while spec and not spec[-1]:
            spec = spec[:-1]
        return tuple(spec)

    def words(self) -> str:
        """Returns the inferred rules, or that no axes are compared, as text; empty if there is nothing to say."""
        if self.unnamed:
            return "axes are not compared, because the reference names none"
        listed = ", ".join(f"{name} is {axes}" for name, axes in self.rules if name != axes)
        return f"axes agree if {listed} (no axis_rules given)" if self.inferred else ""


def axis_names(evidence: Evidence) -> AxisNames:
    """Returns the relation of the axis names of both sides."""
    used = [_names(side.build.leaves.values()) for side in evidence.sides]
    rules = next((side.build.rules for side in evidence.sides if side.build.rules), ())
    if not rules:
        if used[1] and not used[0]:
            return AxisNames(unnamed=True)
        related = any(side.mesh.axes for side in evidence.sides) or used[0] & used[1]
        return AxisNames() if related else _inferred(evidence)
    physical = mesh_axes(rules) | {name for side in evidence.sides for name, _ in side.mesh.axes}
    declare_mesh_axes = [bool(names) and all(_parts(name) <= physical for name in names) for names in used]
    if declare_mesh_axes[0] == declare_mesh_axes[1]:
        return AxisNames()
    ruled = {name for name, _ in rules}
    own = sorted(
        (name for name in used[0] | used[1] if name not in ruled and _parts(name) <= physical), key=str
    )
    return AxisNames(rules=(*rules, *((name, name) for name in own)))


def _names(leaves: Iterable[Leaf]) -> set:
    return {name for leaf in leaves for name in leaf.logical_axes or () if name}


def _parts(name: object) -> set:
    return set(name) if isinstance(name, tuple) else {name}


def _inferred(evidence: Evidence) -> AxisNames:
    """Returns the rules that most parameters agree on, if nothing else relates the names of the axes of both sides.

    None if a name has too few parameters.
    """
    left, right = (side.build.leaves for side in evidence.sides)
    votes: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for entry in evidence.weights.entries:
        if entry.role is Role.PARAMS:
            wanted = _transformed(entry, [left[path].logical_axes for path in entry.reference])
            for path, axes in zip(entry.candidate, wanted or (), strict=False):
                for name, other in zip(axes or (), right[path].logical_axes or (), strict=False):
                    if name and other:
                        votes[name][other] += 1
    chosen = {name: count.most_common(1)[0] for name, count in votes.items()}
    if not chosen or min(number for _, number in chosen.values()) < SUPPORT:
        return AxisNames()
    rules = [(name, other) for name, (other, _) in chosen.items()]
    return AxisNames(rules=(*rules, *((other, other) for other in _names(right.values()))), inferred=True)


def _transformed(entry: Entry, named: Sequence[Axes]) -> list[tuple] | None:
    """Returns the candidate's axes for the reference's; None if they are not known."""
    axes = [axes for axes in named if axes is not None]
    return entry.transform.axes(axes) if len(axes) == len(named) else None


def compare_axes(evidence: Evidence) -> list[Finding]:
    """Finds paired leaves whose axes differ beyond the effect of transforms and rules; parameters before moments."""
    leaves, related = [side.build.leaves for side in evidence.sides], axis_names(evidence)
    found: list[Finding] = []
    for entry in evidence.weights.entries:
        different = _differing(entry, leaves, related)
        found += [with_sources(evidence, one, (entry.reference[0], one.where)) for one in different]
    return causes_first(found, [one.where for one in found], leaves[1])


def _differing(entry: Entry, sides: Sequence[Mapping[str, Leaf]], related: AxisNames) -> list[Finding]:
    """Finds leaves of one map entry whose axes differ beyond the effect of the transform and the rules."""
    names = [
        [side[path].logical_axes for path in paths]
        for side, paths in zip(sides, (entry.reference, entry.candidate), strict=True)
    ]
    if all(axes is None for axes in (*names[0], *names[1])):
        return []
    expected = _transformed(entry, names[0])
    if None not in names[0] and None not in names[1] and expected is None:
        return []
    found = zip(entry.candidate, expected or names[0], names[1], strict=False)
    return [
        Finding(
            where=path,
            reference=f"logical axes {wanted}",
            candidate=f"logical axes {got}",
            cause=related.difference(wanted, got),
            next_step=_next_step(wanted, got),
        )
        for path, wanted, got in found
        if not related.agree(wanted, got)
    ]


def _next_step(wanted: Axes, got: Axes) -> str:
    pairs = itertools.zip_longest((wanted or ())[::-1], (got or ())[::-1], fillvalue="")
    unlike = [one != other for one, other in pairs]  # the last axis first; an axis without a name is None
    leading = unlike[:1] == [False] and unlike[-1:] == [True] and unlike == sorted(unlike)
    return STACKED if leading else "compare the parameter's declaration on both sides"
