"""Attributes of MLIR operations by name, including those that the bindings cannot cast."""

import dataclasses
import math
import re
from typing import Any

import numpy as np

__all__ = [
    "UnreadAttribute",
    "attribute_items",
    "dense_array",
    "dense_numbers",
    "dictionary_items",
    "integers",
]


@dataclasses.dataclass(frozen=True)
class UnreadAttribute:
    """An attribute that the bindings cannot cast, as MLIR prints it, such as a dense complex constant."""

    text: str

    def __str__(self) -> str:
        return self.text


def attribute_items(operation: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an operation by name (jaxlib 0.10 to 0.12 iterate over the names)."""
    return dictionary_items(operation.attributes)


def integers(attribute: Any) -> tuple[int, ...]:
    """Returns the integers of an attribute, flat; empty without an attribute."""
    if attribute is None:
        return ()
    if hasattr(attribute, "value"):
        return (attribute.value,)
    if hasattr(attribute, "is_splat"):  # dense elements
        return tuple(np.array(attribute).ravel().tolist())
    return tuple(int(each) for each in attribute)


def dictionary_items(attributes: Any) -> list[tuple[str, Any]]:
    """Returns the entries of a dictionary attribute, or of an operation's attributes, by name."""
    names = [entry if isinstance(entry, str) else entry.name for entry in attributes]
    try:
        return [(name, attributes[name]) for name in names]
    except TypeError:  # an attribute without a Python class, such as complex elements
        return [(name, _attribute(attributes, place, name)) for place, name in enumerate(names)]


def _attribute(attributes: Any, place: int, name: str) -> Any:
    try:
        return attributes[name]
    except TypeError:
        # Only the text of a NamedAttribute is safe to read: its ``attr`` ends the process.
        text = repr(attributes[place])
        start = f"NamedAttribute({name}="
        if not text.startswith(start):
            raise
        return UnreadAttribute(text.removeprefix(start).removesuffix(")"))


_SPLAT = re.compile(r"dense<(?P<number>[^\[\]<>()\",]*)> : tensor<[^<>]+>")


def dense_numbers(operation: Any, most: int = 1) -> tuple[float, ...]:
    """Returns the distinct numbers of a constant; nothing if it has more than ``most`` entries and is not a splat.

    Args:
        operation: a ``stablehlo.constant``.
        most: largest number of entries to read.
    """
    value = dict(attribute_items(operation)).get("value")
    kind = operation.results[0].type
    if not _is_splat(value):
        return _entries(value) if 1 < math.prod(kind.shape) <= most else ()
    return _number(value)


def dense_array(operation: Any) -> np.ndarray | None:
    """Returns the entries of a constant; None if its element type has no counterpart in NumPy.

    Args:
        operation: a ``stablehlo.constant``.
    """
    value, kind = dict(attribute_items(operation)).get("value"), operation.results[0].type
    try:
        array = np.array(value)
    except (TypeError, ValueError):  # complex, or an element type without a NumPy counterpart, such as bf16
        return None
    return array if array.shape == tuple(kind.shape) and array.dtype.kind in "iufb" else None


def _is_splat(value: Any) -> bool:
    return getattr(value, "is_splat", True)


def _entries(value: Any) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(map(float, np.ravel(np.array(value)))))
    except (TypeError, ValueError):  # complex, or an element type without a NumPy counterpart, such as bf16
        return ()


def _number(value: Any) -> tuple[float, ...]:
    """Returns the number of a splat as MLIR prints it; NaN and infinities, which MLIR prints as bits, as floats."""
    match = _SPLAT.fullmatch(str(value))
    text = match["number"] if match else ""
    if text.startswith("0x"):
        return (float(value.get_splat_value().value),)
    if text in ("true", "false"):
        return (float(text == "true"),)
    try:
        return (float(text),)
    except ValueError:  # an element type that is not a number, such as a complex pair
        return ()
