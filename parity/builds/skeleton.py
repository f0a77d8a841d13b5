"""A state's tree without its arrays, in JSON types: the structure of a checkpoint of that state."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import linen, nnx

from parity.builds.tree import path_name

Skeleton = dict[str, "Skeleton"] | list["Skeleton"] | str | None
"""Dicts and lists whose leaves are paths; None is a node without arrays, such as an optimizer's empty state."""

VALUE = "value"
"""The name under which Orbax stores the array of a Variable."""


def skeleton(tree: Any) -> Skeleton:
    """Returns the tree as Orbax stores it: sequences become lists; named tuples, states and Variables become dicts.

    Args:
        tree: a state, abstract or not; boxes of Linen are removed.
    """
    return _skeleton(linen.meta.unbox(tree), ())


def _skeleton(node: Any, place: tuple[Any, ...]) -> Skeleton:
    if isinstance(node, nnx.Variable):
        return {VALUE: _skeleton(node.get_value(), place)}
    if not jax.tree.leaves(node):
        return {} if isinstance(node, Mapping) else None
    rows, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda part: part is not node)
    parts = {key: _skeleton(part, (*place, key)) for keys, part in rows for key in keys if _is_stored(part)}
    if not parts:  # an array
        return path_name(place)
    if isinstance(next(iter(parts)), jax.tree_util.SequenceKey):
        return list(parts.values())
    return {path_name((key,)): part for key, part in parts.items()}


def _is_stored(node: Any) -> bool:
    """True if Orbax stores a node: an empty one of a user's class is no entry."""
    return node is None or isinstance(node, tuple | list | Mapping) or bool(jax.tree.leaves(node))


def fill(shape: Skeleton, arrays: Mapping[str, Any]) -> Any:
    """Returns the tree with arrays at its leaves, without the branches that have none.

    Args:
        arrays: ``{path: array}`` of all or some leaves.
    """
    if isinstance(shape, str):
        return arrays.get(shape)
    if isinstance(shape, list):
        return [fill(part, arrays) for part in shape]
    if shape is None:
        return None
    return {
        name: fill(part, arrays)
        for name, part in shape.items()
        if not (held := leaves_of(part)) or any(path in arrays for path in held)
    }


def leaves_of(shape: Skeleton) -> list[str]:
    """Returns the paths at the leaves."""
    return jax.tree.leaves(shape)
