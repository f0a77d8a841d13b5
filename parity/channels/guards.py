"""Guards of proved cases, from the lowered reference and one cheap run: results are numbers and depend on something."""

import fnmatch
from collections.abc import Sequence

from parity.builds.build import Group
from parity.builds.tree import Role
from parity.compare.comparison import Comparison
from parity.compare.facts import INPUTS, PARAMETERS, Facts, known_facts
from parity.compare.sample import idle_outputs
from parity.values.static import Content
from parity.verdicts import Finding

__all__ = ["dead_gradients", "idle_state", "idle_values"]

NAN = "NaN in every entry, whatever the inputs"


def _facts(work: Comparison) -> Facts:
    side = work.reference
    return work.remember(("facts", *side.identity), lambda: known_facts(side))


def idle_values(work: Comparison) -> list[Finding]:
    """Finds values that no parameter or no input reaches, that are no numbers, or a single one."""
    known, build = _facts(work).results.get(Group.VALUES, {}), work.reference.build
    if not known:
        return []
    has = {
        PARAMETERS: any(leaf.role is Role.PARAMS for leaf in build.leaves.values()),
        INPUTS: bool(build.abstract_inputs),
    }
    reached = frozenset().union(*(fact.sources for fact in known.values()))
    idle = [
        _finding("values", f"no value depends on the {label}", f"values that the {label} move")
        for label, given in has.items()
        if given and label not in reached
    ]
    return idle + _computed(work, Group.VALUES, run=not idle)


def dead_gradients(work: Comparison) -> list[Finding]:
    """Finds gradients that are zero by the program's text or on data, and NaN."""
    known = _facts(work).results.get(Group.GRADIENTS, {})
    dead = [
        _finding(path, "a gradient of zeros, whatever the inputs", "a gradient that is not zero")
        for path, fact in known.items()
        if fact.content is Content.ZERO and not _declared(path, work.case.zero_gradients)
    ]
    return dead + _computed(work, Group.GRADIENTS, run=not dead)


def idle_state(work: Comparison) -> list[Finding]:
    """Finds parameters that a step returns as it took them, and NaN."""
    facts, leaves = _facts(work), work.reference.build.leaves
    still = [
        _finding(path, "returned as it was taken, whatever the inputs", "a parameter that the program moves")
        for path in sorted(facts.untouched)
        if leaves[path].role is Role.PARAMS and not _declared(path, work.case.zero_gradients)
    ]
    return still + _computed(work, Group.STATE, run=not still)


def _computed(work: Comparison, group: Group, *, run: bool) -> list[Finding]:
    """Finds NaN in the program's text; if there is none, what one run on ordinary data shows, where that is cheap."""
    known = _facts(work).results.get(group, {})
    if constant := [path for path, fact in known.items() if fact.content is Content.NAN]:
        return [_finding(path, NAN, "numbers", "look for a constant that is NaN") for path in constant]
    return idle_outputs(work, group) if run else []


def _declared(path: str, globs: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(path, glob) for glob in globs)


def _finding(where: str, got: str, expected: str, next_step: str = "") -> Finding:
    return Finding(
        where=where,
        reference=f"expected {expected}",
        candidate=f"both sides: {got}",
        cause="a check that cannot fail",
        next_step=next_step or "look at what the program reads and returns, or declare it in the pair",
    )
