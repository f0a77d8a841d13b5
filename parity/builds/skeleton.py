"""A state's tree without its arrays, in JSON types: the structure of a checkpoint of that state."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import linen, nnx

from parity.builds.tree import key_name

__all__ = ["Skeleton", "fill", "leaves_of", "skeleton", "skeleton_of_paths"]

Skeleton = dict[str, "Skeleton"] | list["Skeleton"] | str | None
"""Dicts and lists whose leaves are paths; None is a node without arrays, such as an optimizer's empty state."""

VALUE = "value"
"""The name under which Orbax stores the array of a Variable."""


def skeleton(tree: Any) -> Skeleton:
    """Returns the tree as Orbax stores it: sequences become lists; named tuples, states and Variables become dicts.

    Args:
        tree: a state, abstract or not; boxes of Linen are removed.
    """
    tree = linen.meta.unbox(tree)
    rows, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_end)
    whole: dict[str, Any] = {}
    for keys, node in rows:
        if isinstance(node, nnx.Variable):
            inner = jax.tree_util.tree_flatten_with_path(node.get_value())[0]
            ends = [((*keys, VALUE, *more), (*keys, *more)) for more, _ in inner]
        else:
            ends = [(keys, None if _is_empty(node) else keys)]
        for place, names in ends:
            empty = {} if isinstance(node, Mapping) else None
            _put(whole, place, empty if names is None else "/".join(map(key_name, names)))
    return _with_lists(whole)


def skeleton_of_paths(paths: Any) -> Skeleton:
    """Returns nested dicts with the given paths, for states of which only the paths are known."""
    whole: dict[str, Any] = {}
    for path in paths:
        _put(whole, path.split("/"), path)
    return _with_lists(whole)


def fill(shape: Skeleton, arrays: Mapping[str, Any]) -> Any:
    """Returns the tree with arrays at its leaves, without the branches that have none.

    Args:
        shape: as `skeleton` returns it.
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
    """Returns the paths at the leaves, in order."""
    if isinstance(shape, str):
        return [shape]
    parts = shape.values() if isinstance(shape, dict) else shape or ()
    return [path for part in parts for path in leaves_of(part)]


class _Sequence(dict):
    """A list under construction."""


def _is_end(node: Any) -> bool:
    return node is None or isinstance(node, nnx.Variable) or _is_empty(node)


def _is_empty(node: Any) -> bool:
    return node is None or (isinstance(node, tuple | list | Mapping) and not jax.tree.leaves(node))


def _put(whole: dict[Any, Any], place: Any, leaf: Skeleton) -> None:
    node: dict[Any, Any] = whole
    for at, key in enumerate(place):
        name = key if isinstance(key, str) else key_name(key)
        if at == len(place) - 1:
            node[name] = leaf
        else:
            after = place[at + 1]
            kind = _Sequence if isinstance(after, jax.tree_util.SequenceKey) else dict
            node = node.setdefault(name, kind())


def _with_lists(node: Any) -> Skeleton:
    if isinstance(node, _Sequence):
        return [_with_lists(node[key]) for key in sorted(node, key=int)]
    return {key: _with_lists(part) for key, part in node.items()} if isinstance(node, dict) else node
