"""Attributes of MLIR operations: by name, including those that the bindings cannot cast; tokens of their text."""

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"@(?:{_STRING}|[\w.$-]+)"
# A symbol reference may be nested, @outer::@inner. Inside of a string nothing is a reference, bracket or comma.
_REFERENCE = re.compile(rf"{_STRING}|({_NAME}(?:::{_NAME})*)", re.DOTALL | re.ASCII)
_MARK = re.compile(rf"{_STRING}|[,\[\](){{}}<>]", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class UnreadAttribute:
    """An attribute that the bindings cannot cast, as MLIR prints it, such as a dense complex constant."""

    text: str

    def __str__(self) -> str:
        return self.text


def attribute_items(operation: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an operation by name."""
    try:
        return operation.attributes.items()
    except TypeError:  # an attribute without a Python class, such as complex elements
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


def numbers(text: str, name: str) -> tuple[int, ...]:
    """Returns the list ``name`` of a printed attribute; empty if it is absent."""
    found = re.search(rf"\b{name}\s*=\s*\[([^\]]*)\]", text)
    return tuple(int(each) for each in found[1].split(",") if each.strip()) if found else ()


def dictionary_items(attributes: Any) -> list[tuple[str, Any]]:
    """Returns the entries of a dictionary attribute, or of an operation's attributes, by name."""
    names = [entry if isinstance(entry, str) else entry.name for entry in attributes]
    return [(name, _attribute(attributes, place, name)) for place, name in enumerate(names)]


def _attribute(attributes: Any, place: int, name: str) -> Any:
    try:
        return attributes[name]
    except TypeError:  # an attribute without a Python class, such as complex elements
        # Only the text of a NamedAttribute is safe to read: its ``attr`` ends the process.
        text = repr(attributes[place])
        start = f"NamedAttribute({name}="
        if not text.startswith(start):
            raise
        return UnreadAttribute(text.removeprefix(start).removesuffix(")"))


def dense_numbers(operation: Any, most: int = 1) -> tuple[float, ...]:
    """Returns the distinct numbers of a constant; nothing if it has more than ``most`` entries and is not a splat."""
    value: Any = dict(attribute_items(operation)).get("value")
    if not hasattr(value, "is_splat"):  # such as complex elements
        return ()
    if value.is_splat:
        return (float(value.get_splat_value().value),)
    array = dense_array(value) if len(value) <= most else None
    return () if array is None else tuple(dict.fromkeys(map(float, array.ravel())))


def dense_array(attribute: Any) -> np.ndarray | None:
    """Returns the entries of a constant; None if NumPy cannot read its element type, or reads another shape."""
    try:
        array = np.array(attribute)
    except (RuntimeError, TypeError, ValueError):  # such as bf16
        return None
    whole = array.dtype.kind in "iufb" and array.shape == tuple(attribute.type.shape)
    return array if whole else None


def symbol_of(name: str) -> str:
    r"""Returns the name of a printed definition, ``"f"``, or reference, ``@f`` or ``@"a\22b"``, as in the symbol table.

    MLIR escapes a name in the same way everywhere, and quotes it if it is not a plain identifier.
    """
    name = name.removeprefix("@")
    return name[1:-1] if name.startswith('"') else name


def replace_symbols(text: str, replace: Callable[[str], str]) -> str:
    """Returns a printed attribute with every symbol reference replaced, such as ``@f`` or ``@outer::@inner``."""
    if "@" not in text:
        return text
    return _REFERENCE.sub(lambda match: replace(match.group(1)) if match.group(1) else match.group(0), text)


def split_list(text: str) -> list[str]:
    """Splits the text of a bracketed list at its top-level commas; brackets inside strings do not count."""
    start, end = text.find("[") + 1, text.rfind("]") % max(len(text), 1)
    cuts, depth = [start - 1], 0
    for match in _MARK.finditer(text, start, max(start, end)):
        token = match.group()
        if token == "," and depth == 0:
            cuts.append(match.start())
        depth += (token in "[{(<") - (token in "]})>")
    parts = (text[left + 1 : right] for left, right in itertools.pairwise([*cuts, max(start, end)]))
    return [part.strip() for part in parts if part.strip()]
