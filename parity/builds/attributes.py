"""Effects of a program besides arrays: metadata and Python attributes of a module after a call."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from flax import nnx

from parity.builds.tree import Leaf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effects:
    """Effects of a program, recorded from its trace.

    Args:
        leaves: the state's leaves after the program; empty for flavours whose arrays carry no metadata.
        attributes: ``{path: (before, after)}`` of the Python attributes that the program changed.
    """

    leaves: Mapping[str, Leaf] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


_COLLECTED: contextvars.ContextVar[list[Effects] | None] = contextvars.ContextVar("effects", default=None)
"""The effects noted in the innermost `collect_effects`; None outside such a block."""


@contextlib.contextmanager
def collect_effects() -> Iterator[list[Effects]]:
    """Collects the effects of the programs that are traced in the block."""
    collected: list[Effects] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def note_effects(effects: Effects) -> None:
    """Adds effects to the innermost `collect_effects`, if there is one."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.append(effects)


def settings_of(module: Any) -> dict[str, Any]:
    """Returns ``{path: value}`` of the attributes that hold a number or a tuple of numbers.

    Booleans are left out, because they are modes of a model. A step may set one, such as ``model.train()``: the next
    call finds it set and is not traced again.
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
    """Returns ``{path: (was, is)}`` of the attributes whose value changed; added and removed ones do not count."""
    return {
        path: (repr(value), repr(after[path]))
        for path, value in before.items()
        if path in after and (type(after[path]), after[path]) != (type(value), value) and value == value
    }
