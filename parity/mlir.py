"""Attributes of MLIR operations by name, also those that the bindings cannot cast."""

import dataclasses
from typing import Any

__all__ = ["UnreadAttribute", "attribute_items", "dictionary_items"]


@dataclasses.dataclass(frozen=True)
class UnreadAttribute:
    """An attribute that the bindings cannot cast, as MLIR prints it, such as a dense complex constant."""

    text: str

    def __str__(self) -> str:
        return self.text


def attribute_items(operation: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an operation by name (jaxlib 0.10 to 0.12 iterate over the names)."""
    return dictionary_items(operation.attributes)


def dictionary_items(attributes: Any) -> list[tuple[str, Any]]:
    """Returns the entries of a dictionary attribute, or of an operation's attributes, by name."""
    names = [entry if isinstance(entry, str) else entry.name for entry in attributes]
    try:
        return [(name, attributes[name]) for name in names]
    except TypeError:  # an attribute without a class of its own: complex elements
        return [(name, _attribute(attributes, place, name)) for place, name in enumerate(names)]


def _attribute(attributes: Any, place: int, name: str) -> Any:
    try:
        return attributes[name]
    except TypeError:
        # Only the text of a NamedAttribute is safe to ask for: its ``attr`` ends the process.
        text = repr(attributes[place])
        start = f"NamedAttribute({name}="
        if not text.startswith(start):
            raise
        return UnreadAttribute(text.removeprefix(start).removesuffix(")"))
