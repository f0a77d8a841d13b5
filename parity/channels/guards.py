"""Guards of proved cases, from the lowered reference and one cheap run: results are numbers that depend on inputs."""

from parity.builds.build import Group
from parity.builds.tree import Role
from parity.channels.measure import nothing_returned
from parity.compare.evidence import Evidence
from parity.compare.pairing import state_arguments
from parity.compare.sample import idle_outputs
from parity.compare.side import INPUT, Side
from parity.values.static import Content, Fact, result_facts
from parity.values.vacuity import is_declared
from parity.verdicts import Finding

__all__ = ["idle_state", "idle_values", "zero_gradients"]

NAN = "NaN in every entry, whatever the inputs"
PARAMETERS, INPUTS, REST = "parameters", "inputs", "other state"


def _known_facts(side: Side) -> dict[str, dict[str, Fact]]:
    """Returns ``{group: {path: fact}}`` of the lowered program's results, by source; nothing is compiled."""
    program, leaves = side.operations, side.build.leaves
    labels: list[frozenset[str]] = [frozenset()] * len(program.body.parameters)
    for position, (kind, path) in side.read_arguments.items():
        of = INPUTS if kind == INPUT else PARAMETERS if leaves[path].role is Role.PARAMS else REST
        labels[position] = frozenset({of})
    results: dict[str, dict[str, Fact]] = {group: {} for group, _ in side.results}
    for (group, path), fact in zip(side.results, result_facts(program, labels), strict=True):
        results[group][path] = fact
    return results


def _facts(evidence: Evidence, group: Group) -> dict[str, Fact]:
    return evidence.reference.read(_known_facts).get(group, {})


def idle_values(evidence: Evidence) -> list[Finding]:
    """Finds values that do not depend on parameters or on inputs, and values that are NaN or constant."""
    known, build = _facts(evidence, Group.VALUES), evidence.reference.build
    if not known:
        return nothing_returned(evidence, Group.VALUES)
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
    return idle + _computed(evidence, Group.VALUES, run=not idle)


def zero_gradients(evidence: Evidence) -> list[Finding]:
    """Finds gradients that are NaN, and gradients that are zero by the program's text or on data."""
    known = _facts(evidence, Group.GRADIENTS)
    dead = [
        _finding(path, "a gradient of zeros, whatever the inputs", "a gradient that is not zero")
        for path, fact in known.items()
        if fact.content is Content.ZERO and not is_declared(path, evidence.case.accept.zero_gradients)
    ]
    return (
        nothing_returned(evidence, Group.GRADIENTS)
        + dead
        + _computed(evidence, Group.GRADIENTS, run=not dead)
    )


def idle_state(evidence: Evidence) -> list[Finding]:
    """Finds parameters that a step returns unchanged, and NaN."""
    side = evidence.reference
    arguments, leaves = side.operations.body.parameters, side.build.leaves
    outputs = dict(zip(side.results, side.operations.body.outputs, strict=True))
    still = [
        _finding(path, "returned as it was taken, whatever the inputs", "a parameter that the program moves")
        for path, position in sorted(state_arguments(side).items())
        if leaves[path].role is Role.PARAMS
        and outputs.get((Group.STATE, path)) == arguments[position]
        and not is_declared(path, evidence.case.accept.zero_gradients)
    ]
    return nothing_returned(evidence, Group.STATE) + still + _computed(evidence, Group.STATE, run=not still)


def _computed(evidence: Evidence, group: Group, *, run: bool) -> list[Finding]:
    """Finds NaN in the program's text; if there is none, checks one run on ordinary data if that is cheap."""
    known = _facts(evidence, group)
    if constant := [path for path, fact in known.items() if fact.content is Content.NAN]:
        return [_finding(path, NAN, "numbers", "look for a constant that is NaN") for path in constant]
    return idle_outputs(evidence, group) if run else []


def _finding(where: str, got: str, expected: str, next_step: str = "") -> Finding:
    return Finding(
        where=where,
        reference=f"expected {expected}",
        candidate=f"both sides: {got}",
        cause="a check that cannot fail",
        next_step=next_step or "look at what the program reads and returns, or declare it in the pair",
    )
