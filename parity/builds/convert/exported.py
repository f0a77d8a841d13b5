"""A weight map as JSON: for each leaf its partners on the other side, and the evidence that confirmed the pairing."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from parity.builds.convert.stored import one_line
from parity.builds.skeleton import leaves_of
from parity.builds.tree import Role
from parity.builds.weights import transforms
from parity.builds.weights.map import Entry
from parity.builds.weights.transforms import Transform
from parity.verdicts import SIDES, repeated

PROOF = "proof"
CONFIRMED = (PROOF, "probe")
TRANSFORMS: Mapping[str, type] = {
    name: getattr(transforms, name) for name in transforms.__all__ if name != "Transform"
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certified(Entry):
    """An entry of a weight map and its confirmation.

    Args:
        confirmed_by: ``proof``, ``probe``, ``one-to-one`` and the reason, or the reason why nothing confirms it.
        contradicted: True if the two sides responded to a probe differently.
    """

    confirmed_by: str
    contradicted: bool = False

    @property
    def doubt(self) -> str:
        """The reason why the entry is uncertain, as text; empty if it is certain."""
        if self.contradicted:
            return f"confirmed by {self.confirmed_by}"
        if self.confirmed_by in CONFIRMED or not (self.is_guess or self.is_unnamed):
            return ""
        return f"paired by {self.matched_by}, and no proof or probe reads it"


class ExportedLeaf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One leaf of a side.

    Args:
        dtype: its dtype; typed keys have one such as ``key<fry>``.
        key: implementation of a typed key, such as ``threefry2x32``; empty for other leaves.
    """

    shape: tuple[int, ...]
    dtype: str
    role: Role
    key: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedSide:
    """One side of a map.

    Args:
        tree: the state's tree with paths at its leaves, see `Skeleton`.
    """

    name: str
    flavour: str
    leaves: Mapping[str, ExportedLeaf]
    tree: dict[str, Any] | list[Any] | str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedMap:
    """A weight map with the data that converting a checkpoint needs.

    Args:
        schema, kind: the version of the format, and its name.
        versions: versions of the packages that confirmed it.
        alone: RNG leaves that only one side has, by the side.
    """

    schema: Literal[1] = 1
    kind: Literal["parity weight map"] = "parity weight map"
    case: str
    versions: Mapping[str, Any]
    reference: ExportedSide
    candidate: ExportedSide
    entries: tuple[Certified, ...]
    alone: Mapping[str, tuple[str, ...]]

    @property
    def sides(self) -> tuple[ExportedSide, ExportedSide]:
        """Reference and candidate."""
        return self.reference, self.candidate

    def as_json(self) -> dict[str, Any]:
        """Returns the map as the JSON that `read_map` reads; user-defined transforms cannot be stored."""
        kinds = [_kind(entry) for entry in self.entries]
        record = msgspec.to_builtins(self)
        for entry, kind in zip(record["entries"], kinds, strict=True):
            entry["transform"]["kind"] = kind
        return record


def _kind(entry: Entry) -> str:
    kind = type(entry.transform).__name__
    if TRANSFORMS.get(kind) is not type(entry.transform):
        raise ValueError(
            f"{' + '.join(entry.candidate)}: got the transform {kind}, expected one of {', '.join(TRANSFORMS)}; only "
            "those can be written down"
        )
    return kind


def read_map(path: Path) -> ExportedMap:
    """Reads a file of ``parity map --export``, and checks that it is total and one-to-one.

    Raises:
        ValueError: the file is unreadable, no map, of another version, or not total and one-to-one.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"map {path}: cannot be read ({one_line(error)}), expected a file of `parity map --export`"
        ) from error
    try:
        found = msgspec.convert(record, ExportedMap, dec_hook=_transform)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"map {path}: of another version, or damaged ({one_line(error)}); export it again with this version"
        ) from error
    if problem := _gap(found):
        raise ValueError(f"map {path}: {problem}; expected a total one-to-one map; export it again")
    return found


def _transform(kind: type, record: Any) -> Transform:
    """Returns the transform of a record, whose type msgspec does not know."""
    fields = dict(record)
    if (name := fields.pop("kind", None)) not in TRANSFORMS:
        raise ValueError(f"got transform {name}, expected one of {', '.join(TRANSFORMS)}")
    return msgspec.convert(fields, TRANSFORMS[name])


def _gap(found: ExportedMap) -> str:
    """Returns a message if a side's leaves are not in exactly one entry each, or not in its tree; else empty text."""
    first = [path for entry in found.entries for path in entry.reference]
    second = [path for entry in found.entries for path in entry.candidate]
    for name, side, paired in zip(SIDES, found.sides, (first, second), strict=True):
        named = [*paired, *found.alone[name]]
        if sorted(named) != sorted(side.leaves):
            odd = sorted(set(named) ^ set(side.leaves) or repeated(named))
            return f"{side.name}: leaves {', '.join(odd)} are not in one entry each"
        if sorted(leaves_of(side.tree)) != sorted(side.leaves):
            return f"{side.name}: its tree does not hold its leaves"
    return ""
