"""One-sided RNG state: counts its leaves and reports streams that advance without a draw."""

import numpy as np

from parity.builds.build import Build, Group
from parity.builds.tree import Role
from parity.channels.results import SIDES, one_sided
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.compare.unpaired import beginning, typed
from parity.values.rng import Demand, Recorder
from parity.verdicts import Finding

__all__ = ["alone_words", "idle_streams"]


def alone_words(evidence: Evidence) -> str:
    """Returns the number of leaves without a partner, such as ``2 RNG leaves on one side``.

    Names the first of those that the pair's method does not use.
    """
    keys = sum(len(_keys(build, paths)) for build, paths in _each(evidence))
    words = [f"{keys} RNG lea{'ves' if keys > 1 else 'f'} on one side"] if keys else []
    for build, paths in _each(evidence):
        if unused := [path for path in paths if path not in _keys(build, paths)]:
            first = min(unused, key=lambda path: (build.leaves[path].role is not Role.PARAMS, path))
            words.append(
                f"not compared: {len(unused)} leaves that only {build.name} has and `{build.method}` does not use, "
                f"such as {first}"
            )
    return ", ".join(words)


def _each(evidence: Evidence) -> list[tuple[Build, tuple[str, ...]]]:
    return list(zip(evidence.builds, evidence.weights.alone, strict=True))


def _keys(build: Build, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if build.leaves[path].role is Role.RNG)


def idle_streams(evidence: Evidence) -> list[Finding]:
    """Finds streams without a partner that a program advances although it draws nothing from them."""
    keys = (_keys(build, paths) for build, paths in _each(evidence))
    return [
        _note(stream, which)
        for which, side, paths in zip(SIDES, evidence.sides, keys, strict=True)
        if paths
        for stream in _idle(side, paths)
    ]


def _idle(side: Side, paths: tuple[str, ...]) -> list[str]:
    """Returns the streams whose count changes while no draw depends on their key."""
    inputs = {path: index for index, path in enumerate(side.state_paths)}
    outputs = {
        path: position
        for position, (group, path) in enumerate(side.results)
        if group == Group.STATE and path in paths
    }
    jaxpr = side.traced.jaxpr
    drawn = {path.rpartition("/")[0] for path in paths if inputs[path] in Demand(jaxpr).inputs}
    wanted = {path: place for path, place in outputs.items() if path.rpartition("/")[0] not in drawn}
    if not wanted:
        return []
    demand = Demand(jaxpr, wanted.values(), all_draws=False)
    if any(index >= len(inputs) for index in demand.inputs):  # a count that depends on data is not idle
        return []
    starts = {path: beginning(path, side.build.abstract[path]) for path in inputs}
    given = [
        typed(side.build.abstract[path], starts[path]) if index in demand.inputs else None
        for path, index in inputs.items()
    ]
    flat = [*given, *[None] * (len(jaxpr.jaxpr.invars) - len(given))]
    after = Recorder(demand).run(jaxpr, flat)
    moved = {
        path
        for path, place in wanted.items()
        if side.build.leaves[path].dtype.startswith(("uint", "int"))
        and not np.array_equal(np.asarray(after[place]), starts[path])
    }
    return sorted({path.rpartition("/")[0] for path in moved})


def _note(stream: str, which: str) -> Finding:
    return Finding(
        where=stream,
        **one_sided(which, "advanced in each step, though nothing draws from it", "no such stream"),
        cause="a key that is asked for and not used, such as the carry of an RNN that starts at zero",
        next_step="it costs a counter in the state, and in loops over layers a carry; it changes no result",
    )
