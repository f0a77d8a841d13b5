"""What a side's lowered program says of its results without running, by group and path."""

import dataclasses

from parity.builds.tree import Role
from parity.compare.pairing import input_arguments, state_arguments
from parity.compare.side import Side
from parity.values.static import Fact, result_facts

__all__ = ["INPUTS", "PARAMETERS", "Facts", "known_facts"]

PARAMETERS, INPUTS, REST = "parameters", "inputs", "other state"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a program's results.

    Args:
        results: ``{group: {path: fact}}``; sources are `PARAMETERS`, `INPUTS` and other state.
        untouched: state leaves that are returned as they were taken, whatever runs.
    """

    results: dict[str, dict[str, Fact]]
    untouched: frozenset[str]


def known_facts(side: Side) -> Facts:
    """Reads the lowered program once; nothing is compiled."""
    program, leaves = side.operations, side.build.leaves
    labels: list[frozenset[str]] = [frozenset()] * len(program.body.parameters)
    taken = state_arguments(side)
    for path, position in taken.items():
        labels[position] = frozenset({PARAMETERS if leaves[path].role is Role.PARAMS else REST})
    for position in input_arguments(side).values():
        labels[position] = frozenset({INPUTS})
    facts, info = result_facts(program, labels), side.traced.out_info
    places = [(str(group), path) for group in sorted(info) for path in info[group]]
    results: dict[str, dict[str, Fact]] = {group: {} for group, _ in places}
    for (group, path), fact in zip(places, facts, strict=True):
        results[group][path] = fact
    outputs = dict(zip(places, program.body.outputs, strict=True))
    untouched = frozenset(
        path
        for path, position in taken.items()
        if outputs.get(("state", path)) == program.body.parameters[position]
    )
    return Facts(results=results, untouched=untouched)
