"""Typed tables from TOML and JSON: msgspec converts them, and its errors are rewritten as one sentence."""

import difflib
import itertools
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
UNIONS = (types.UnionType, typing.Union)
KINDS = {
    "object": "a table",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
}
SHOWN = 80
"""Maximum number of characters of a wrong value in a message."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table without unknown keys.

    The description of a field, as in ``Annotated[str, msgspec.Meta(description="a folder")]``, is the expected value
    in messages.
    """


def read(kind: type[T], value: Any, where: str = "") -> T:
    """Returns a table as a type; dates become texts.

    Args:
        kind: a `Table`, another type that msgspec knows, or a type of ``typing`` made of such.

    Raises:
        ValueError: the first mistake: its place, the value, the expected one.
    """
    plain = msgspec.to_builtins(value)
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as wrong:
        raise ValueError(": ".join(filter(None, (where, *_mistake(kind, plain, wrong))))) from wrong


def unknown(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message on an unknown name, with the nearest known one."""
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1)
    return f"got {name}, expected one of {', '.join(names)}" + (f"; did you mean {near[0]}?" if near else "")


def _mistake(kind: Any, value: Any, wrong: Exception, place: str = "") -> tuple[str, str]:
    """Returns the place of a mistake, in the innermost part that cannot be converted, and the mistake."""
    for separator, name, part, inner in _parts(kind, value):
        try:
            msgspec.convert(inner, part)
        except msgspec.ValidationError as error:
            return _mistake(part, inner, error, f"{place}{place and separator}{name}")
    text = str(wrong)
    if wrong.__cause__:
        return place, text
    if field := FIELD.fullmatch(text):
        fields = {name: part for one in _options(kind) for name, part in _fields(one).items()}
        if field[1] != "missing required":
            return place, unknown(field[2], fields)
        described = _described(fields[field[2]])
        names = f"{field[2]} = {described}" if described else ", ".join(fields)
        return place, f"got no {field[2]}, expected {names}"
    if text.startswith("Invalid enum value"):
        choices = [typing.get_args(one) or one for one in _options(kind)]
        return place, unknown(str(value), [str(choice) for each in choices for choice in each])
    expected = re.sub(r"^Expected |, got `.*`$", "", text)
    expected = re.sub(
        "`(.*?)`", lambda names: " or ".join(KINDS.get(one, one) for one in names[1].split(" | ")), expected
    )
    return place, f"got {repr(value)[:SHOWN]}, expected {_described(kind) or expected}"


def _parts(kind: Any, value: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields the entries of a table or a list whose type is known: separator and name in a place, type, value."""
    for one in _options(kind):
        origin, inner = typing.get_origin(one), typing.get_args(one)
        if isinstance(value, dict):
            known = dict.fromkeys(value, inner[1]) if origin in (dict, Mapping) else _fields(one)
            yield from ((".", key, known[key], value[key]) for key in value if key in known)
        elif isinstance(value, list) and origin in (list, tuple, Sequence):
            typed = inner if origin is tuple and ... not in inner else itertools.repeat(inner[0])
            pairs = enumerate(zip(typed, value, strict=False), 1)
            yield from ((", ", f"number {at}", part, each) for at, (part, each) in pairs)


def _options(kind: Any) -> list[Any]:
    """Returns the members of a union, without annotations; a list of one for another type."""
    inner, origin = typing.get_args(kind), typing.get_origin(kind)
    members = inner if origin in UNIONS else inner[:1] if origin is typing.Annotated else ()
    return [one for member in members for one in _options(member)] or [kind]


def _fields(kind: Any) -> dict[str, Any]:
    """Returns the types of the fields of a table or a dataclass, by their names in a file."""
    names = {
        field.name: field.encode_name for field in getattr(msgspec.inspect.type_info(kind), "fields", ())
    }
    hints = typing.get_type_hints(kind, include_extras=True) if names else {}
    return {names[name]: hint for name, hint in hints.items() if name in names}


def _described(kind: Any) -> str:
    """Returns the description of a type, or of a member of a union; empty if there is none."""
    members = typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)
    notes = (note for one in members for note in getattr(one, "__metadata__", ()))
    return next((note.description for note in notes if note.description), "")
