"""Typed tables from TOML and JSON: msgspec converts them, and its errors are rewritten as one sentence."""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

__all__ = ["Table", "read", "unknown"]

T = TypeVar("T")
STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")
FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
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
        value: parsed TOML or JSON.
        where: the file or table, for messages.

    Raises:
        ValueError: the first mistake: its place, the value, the expected one.
    """
    plain = msgspec.to_builtins(value)
    try:
        return msgspec.convert([plain], list[kind])[0]  # in a list, so that each error has a place
    except msgspec.ValidationError as wrong:
        raise ValueError(": ".join(filter(None, (where, *_sentence(kind, plain, wrong))))) from wrong


def unknown(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message on an unknown name, with the nearest known one."""
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1)
    return f"got {name}, expected one of {', '.join(names)}" + (f"; did you mean {near[0]}?" if near else "")


def _sentence(kind: Any, value: Any, wrong: msgspec.ValidationError) -> tuple[str, str]:
    """Returns the place of a mistake, and the mistake."""
    text, _, path = str(wrong).removesuffix("`").rpartition(" - at `$[0]")
    place, kind, value = [("", kind, value), *_steps(kind, value, path)][-1]
    if wrong.__cause__:
        return place, text
    if field := FIELD.fullmatch(text):
        fields, name = _fields(kind), field[2]
        if field[1] != "missing required":
            return place, unknown(name, fields)
        described = _described(fields[name])
        return place, f"got no {name}, expected {f'{name} = {described}' if described else ', '.join(fields)}"
    if text.startswith("Invalid enum value"):
        return place, unknown(str(value), [str(choice) for one in _options(kind) for choice in _choices(one)])
    expected = _described(kind) or _in_words(re.sub(r"^Expected |, got `.*`$", "", text))
    return place, f"got {repr(value)[:SHOWN]}, expected {expected}"


def _steps(kind: Any, value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields name, type and value of each place on the path to a mistake; msgspec does not name keys of a mapping."""
    place = ""
    for field, number, _ in STEP.findall(path):
        if number:
            key, kind = int(number), _inner(kind, (list, tuple, Sequence))
            place = f"{place}, number {key + 1}" if place else f"number {key + 1}"
        else:
            if field:
                key, kind = field, _fields(kind)[field]
            else:
                kind = _inner(kind, (dict, Mapping))
                key = next(key for key, one in value.items() if not _fits(kind, one))
            place = f"{place}.{key}" if place else key
        value = value[key]
        yield place, kind, value


def _fits(kind: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _options(kind: Any) -> list[Any]:
    """Returns the members of a union, without annotations; a list of one for another type."""
    if typing.get_origin(kind) is typing.Annotated:
        return _options(typing.get_args(kind)[0])
    return (
        [one for member in typing.get_args(kind) for one in _options(member)] if _is_union(kind) else [kind]
    )


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (types.UnionType, typing.Union)


def _inner(kind: Any, containers: tuple[type, ...]) -> Any:
    """Returns the type of the values of a list or a mapping."""
    arguments = next(typing.get_args(one) for one in _options(kind) if typing.get_origin(one) in containers)
    return arguments[1 if dict in containers else 0]


def _fields(kind: Any) -> dict[str, Any]:
    """Returns the types of the fields of a table or a dataclass, by their names in a file."""
    found: dict[str, Any] = {}
    for table in _options(kind):
        if dataclasses.is_dataclass(table):
            found |= typing.get_type_hints(table)
        elif isinstance(table, type) and issubclass(table, msgspec.Struct):
            hints = typing.get_type_hints(table, include_extras=True)
            found |= {field.encode_name: hints[field.name] for field in msgspec.structs.fields(table)}
    return found


def _choices(kind: Any) -> Iterable[Any]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else kind


def _described(kind: Any) -> str:
    """Returns the description of a type, or of a member of a union; empty if there is none."""
    members = typing.get_args(kind) if _is_union(kind) else (kind,)
    notes = (note for one in members for note in getattr(one, "__metadata__", ()))
    return next((note.description for note in notes if note.description), "")


def _in_words(expected: str) -> str:
    """Returns a text such as ```object | array` of length >= 1`` with plain words for types."""
    match = re.fullmatch(r"`(.*?)`(.*)", expected)
    return (
        " or ".join(KINDS.get(name, name) for name in match[1].split(" | ")) + match[2] if match else expected
    )
