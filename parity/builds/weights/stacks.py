"""Finds leaves that are layers of one stack, and the axes along which they may be stacked."""

from collections.abc import Mapping, Sequence

from parity.builds.tree import Leaf

__all__ = ["layer_groups", "stack_axes"]


def layer_groups(leaves: Mapping[str, Leaf]) -> dict[str, list[str]]:
    """Returns ``{name without its layer number: members in order}`` for complete runs 0, 1, 2, ..."""
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for name in leaves:
        parts = name.split("/")
        for at, part in enumerate(parts):
            if part.isdigit():
                around = ("/".join(parts[:at]), "/".join(parts[at + 1 :]))
                groups.setdefault(around, {})[int(part)] = name
    return {
        "/".join(filter(None, around)): [members[index] for index in range(len(members))]
        for around, members in groups.items()
        if set(members) == set(range(len(members)))
    }


def stack_axes(stacked: Leaf | None, members: Sequence[Leaf]) -> list[int]:
    """Returns the axes along which ``stacked`` may hold ``members``; logical axis names settle ambiguous sizes."""
    if stacked is None or len({member.shape for member in members}) != 1:
        return []
    shape, rank = stacked.shape, len(stacked.shape)
    fitting = [
        axis
        for axis in range(rank)
        if shape[axis] == len(members) and shape[:axis] + shape[axis + 1 :] == members[0].shape
    ]
    names, member_names = stacked.logical_axes, members[0].logical_axes
    if names is not None and member_names is not None:
        named = [axis for axis in fitting if names[:axis] + names[axis + 1 :] == member_names]
        fitting = named or fitting
    return fitting
