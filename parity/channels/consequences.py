"""Order of findings: parameters come first, and the findings that follow from one are folded into it."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from parity.builds.tree import Leaf, Role
from parity.builds.weights.map import normalise
from parity.builds.weights.modules import moment_of
from parity.compare.unpaired import split_step
from parity.verdicts import Finding


def causes_first(
    findings: Sequence[Finding], paths: Sequence[str], leaves: Mapping[str, Leaf]
) -> list[Finding]:
    """Sorts findings of leaves by role, else in the order given; folds moments into their parameter.

    The first finding of each step, role and part of the state comes before all others, earliest step first: the cause
    may be a counter or a bias, which hundreds of dependent parameters must not hide.

    Args:
        findings: one or several for each leaf.
        paths: the leaf of each finding; a path that begins with ``step3/`` is a consequence within that step only.
        leaves: leaves of the side that has these paths; findings of other leaves come last.
    """
    roles = list(Role)
    parts = list(map(split_step, paths))
    held = [leaves.get(leaf) for _, leaf in parts]
    places = [roles.index(leaf.role) if leaf else len(roles) for leaf in held]
    owners: dict[tuple[str, str], int] = {}
    for at, leaf in enumerate(held):
        if leaf and leaf.role is Role.PARAMS:
            owners.setdefault((parts[at][0], normalise(leaf.path)), at)
    names = {name for _, name in owners}
    folded: dict[int, list[Finding]] = collections.defaultdict(list)
    kept: list[int] = []
    for at, leaf in enumerate(held):
        moment = leaf and leaf.role is Role.OPTIMIZER and moment_of(normalise(leaf.path), names)
        owner = owners.get((parts[at][0], moment[1])) if moment else None
        if owner is None:
            kept.append(at)
        else:
            folded[owner].append(findings[at])
    kept.sort(key=places.__getitem__)
    first: dict[tuple[int, str, int, str], int] = {}
    for at in kept:
        step, path = parts[at]
        first.setdefault((len(step), step, places[at], path.split("/")[0]), at)
    leading = [first[part] for part in sorted(first)]
    return [_with_moments(findings[at], folded[at]) for at in dict.fromkeys([*leading, *kept])]


def _with_moments(finding: Finding, moments: Sequence[Finding]) -> Finding:
    if not moments:
        return finding
    words = f"its moments, too ({len(moments)})"
    distance = f"{finding.distance}; {words}" if finding.distance else words
    return dataclasses.replace(finding, distance=distance, follows=tuple(moments))
