"""Leaves that a pair's method does not use: Linen makes only the leaves that a method uses, NNX makes all."""

import dataclasses

from parity.builds.build import Group
from parity.builds.tree import Role
from parity.builds.weights.map import HOLDERS, MapError, WeightMap, normalise
from parity.builds.weights.modules import moment_of
from parity.compare.side import Side
from parity.values.rng import Demand

__all__ = ["unpaired_unused", "unused_leaves", "with_unused"]


def unused_leaves(side: Side) -> set[str]:
    """Returns the leaves on which no result of the program depends, with the moments of parameters.

    Args:
        side: side of a program that does not train.
    """
    jaxpr, leaves = side.traced.jaxpr, side.build.leaves
    taken = set(map(id, jaxpr.jaxpr.invars))
    wanted = [
        at
        for at, ((group, _), result) in enumerate(zip(side.results, jaxpr.jaxpr.outvars, strict=True))
        if group != Group.STATE or id(result) not in taken
    ]
    needed = Demand(jaxpr, wanted, all_draws=False).inputs
    unread = {path for at, path in enumerate(side.state_paths) if at not in needed}
    own = {path for path in unread if leaves[path].role in (Role.PARAMS, Role.STATE)}
    owners = {normalise(path) for path in own if leaves[path].role is Role.PARAMS}
    moments = {
        path
        for path, leaf in leaves.items()
        if leaf.role is Role.OPTIMIZER and moment_of(normalise(path), owners, HOLDERS)
    }
    return own | moments


def unpaired_unused(sides: tuple[Side, Side]) -> tuple[set[str], set[str]]:
    """Returns the leaves of each side that its method does not use and whose name the other side lacks.

    Args:
        sides: sides of the program that only calls the method.
    """
    left, right = (side.read(unused_leaves) if side.build.method else set() for side in sides)
    names = [{normalise(path) for path in side.build.leaves} for side in sides]
    return (
        {path for path in left if normalise(path) not in names[1]},
        {path for path in right if normalise(path) not in names[0]},
    )


def with_unused(found: WeightMap | MapError, unused: tuple[set[str], set[str]]) -> WeightMap | MapError:
    """Returns a map of the other leaves, completed by the unused ones, which have no partner; an error unchanged."""
    if isinstance(found, MapError):
        return found
    left, right = (tuple(sorted({*paths, *more})) for paths, more in zip(found.alone, unused, strict=True))
    return dataclasses.replace(found, alone=(left, right))
