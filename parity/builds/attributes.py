"""What an NNX module holds besides arrays: settings that a step should leave alone."""

from collections.abc import Mapping
from typing import Any

from flax import nnx

__all__ = ["changes", "settings_of"]


def settings_of(module: Any) -> dict[str, Any]:
    """Returns the attributes that hold a number, or a tuple of numbers, by path; truth values are modes of a model.

    A step may set a mode, such as ``model.train()``: the next call finds it set and is not traced again.

    Args:
        module: an NNX module; anything else has none.
    """
    if not isinstance(module, nnx.Module):
        return {}
    return {
        "/".join((*map(str, path), name)): value
        for path, node in nnx.iter_graph(module)
        if isinstance(node, nnx.Module)
        for name, value in vars(node).items()
        if not name.startswith("_pytree") and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    number = isinstance(value, int | float | complex) and not isinstance(value, bool)
    return number or (isinstance(value, tuple) and bool(value) and all(map(_is_plain, value)))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns ``{path: (was, is)}`` of the attributes that hold something else; those that came or went do not count.

    Args:
        before, after: from `settings_of`.
    """
    return {
        path: (repr(value), repr(after[path]))
        for path, value in before.items()
        if path in after and (type(after[path]), after[path]) != (type(value), value) and value == value
    }
