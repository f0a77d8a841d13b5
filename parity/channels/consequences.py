"""Order of findings: parameters come first, and the findings that follow from one are folded into it."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from parity.builds.tree import Leaf, Role
from parity.builds.weights.map import HOLDERS, normalise
from parity.builds.weights.modules import moment_of
from parity.verdicts import Finding

__all__ = ["causes_first"]

STEP = re.compile(r"step\d+/")


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
    owners: dict[tuple[str, str], int] = {}
    for at, path in enumerate(paths):
        step, leaf = _parted(path)
        if leaf in leaves and leaves[leaf].role is Role.PARAMS:
            owners.setdefault((step, normalise(leaf)), at)
    names = {name for _, name in owners}
    folded: dict[int, list[Finding]] = {}
    kept: list[int] = []
    for at, path in enumerate(paths):
        step, leaf = _parted(path)
        owner = None
        if leaf in leaves and leaves[leaf].role is Role.OPTIMIZER:
            owned = moment_of(normalise(leaf), names, HOLDERS)
            owner = owners.get((step, owned[1])) if owned else None
        if owner is None:
            kept.append(at)
        else:
            folded.setdefault(owner, []).append(findings[at])
    kept.sort(key=lambda at: _place(paths[at], leaves, roles))
    first: dict[tuple[str, int, str], int] = {}
    for at in kept:
        step, leaf = _parted(paths[at])
        first.setdefault((step, _place(paths[at], leaves, roles), leaf.split("/")[0]), at)
    leading = [first[part] for part in sorted(first, key=lambda part: (len(part[0]), part))]
    kept = [*leading, *(at for at in kept if at not in leading)]
    return [_with_moments(findings[at], folded.get(at, ())) for at in kept]


def _parted(path: str) -> tuple[str, str]:
    step = STEP.match(path)
    return (step[0], path[step.end() :]) if step else ("", path)


def _place(path: str, leaves: Mapping[str, Leaf], roles: Sequence[Role]) -> int:
    leaf = leaves.get(_parted(path)[1])
    return len(roles) if leaf is None else roles.index(leaf.role)


def _with_moments(finding: Finding, moments: Sequence[Finding]) -> Finding:
    if not moments:
        return finding
    words = f"its moments, too ({len(moments)})"
    distance = f"{finding.distance}; {words}" if finding.distance else words
    return dataclasses.replace(finding, distance=distance, follows=tuple(moments))
