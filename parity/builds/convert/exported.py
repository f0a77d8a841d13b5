"""A weight map as JSON: for each leaf its partners on the other side, and the evidence that confirmed the pairing."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from parity.builds.convert.stored import one_line
from parity.builds.skeleton import Skeleton, leaves_of
from parity.builds.tree import Leaf, Role
from parity.builds.weights import transforms
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Transform

__all__ = ["PROOF", "SCHEMA", "Certified", "ExportedMap", "ExportedSide", "read_map"]

SCHEMA = 1
PROOF = "proof"
CONFIRMED = (PROOF, "probe")
GIVEN = (
    "rule",
    "name",
    "name of a stack",
    "parameter it belongs to",
    "module it belongs to",
    "use in the program",
)
"""Matches that identify a leaf with certainty; any other match is a guess until a proof or probe confirms it."""
TRANSFORMS: Mapping[str, type] = {
    name: getattr(transforms, name) for name in transforms.__all__ if name != "Transform"
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certified:
    """An entry of a weight map and its confirmation.

    Args:
        entry: the pairing.
        confirmed_by: ``proof``, ``probe``, ``one-to-one`` and the reason, or the reason why nothing confirms it.
        contradicted: True if the two sides responded to a probe differently.
    """

    entry: Entry
    confirmed_by: str
    contradicted: bool = False

    @property
    def doubt(self) -> str:
        """The reason why the entry is uncertain, as text; empty if it is certain."""
        if self.contradicted:
            return f"confirmed by {self.confirmed_by}"
        if self.confirmed_by in CONFIRMED or self.entry.matched_by in GIVEN:
            return ""
        return f"paired by {self.entry.matched_by}, and no proof or probe reads it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedSide:
    """One side of a map.

    Args:
        name: name of the build.
        flavour: ``linen`` or ``nnx``.
        leaves: ``{path: Leaf}``; typed keys have a dtype such as ``key<fry>``.
        keys: ``{path: implementation}`` of the typed keys, such as ``threefry2x32``.
        skeleton: the state's tree with paths at its leaves.
    """

    name: str
    flavour: str
    leaves: Mapping[str, Leaf]
    keys: Mapping[str, str]
    skeleton: Skeleton


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedMap:
    """A weight map with the data that converting a checkpoint needs.

    Args:
        case: id of its case.
        sides: reference and candidate.
        entries: all of the map.
        alone: RNG leaves that only one side has.
        versions: versions of the packages that confirmed it.
    """

    case: str
    sides: tuple[ExportedSide, ExportedSide]
    entries: tuple[Certified, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]]
    versions: Mapping[str, Any]

    @property
    def weights(self) -> WeightMap:
        """The map itself."""
        return WeightMap(entries=tuple(one.entry for one in self.entries), alone=self.alone)

    def as_json(self) -> dict[str, Any]:
        """Returns the map as the JSON that `read_map` reads.

        Raises:
            ValueError: an entry has a user-defined transform, which cannot be stored.
        """
        return {
            "schema": SCHEMA,
            "kind": "parity weight map",
            "case": self.case,
            "versions": dict(self.versions),
            "reference": _side_record(self.sides[0]),
            "candidate": _side_record(self.sides[1]),
            "entries": [_entry_record(one) for one in self.entries],
            "alone": {"reference": list(self.alone[0]), "candidate": list(self.alone[1])},
        }


def _side_record(side: ExportedSide) -> dict[str, Any]:
    leaves = {
        path: {"shape": list(leaf.shape), "dtype": leaf.dtype, "role": str(leaf.role)}
        | ({"key": side.keys[path]} if path in side.keys else {})
        for path, leaf in side.leaves.items()
    }
    return {"name": side.name, "flavour": side.flavour, "leaves": leaves, "tree": side.skeleton}


def _entry_record(one: Certified) -> dict[str, Any]:
    entry = one.entry
    kind = type(entry.transform).__name__
    if TRANSFORMS.get(kind) is not type(entry.transform):
        raise ValueError(
            f"{' + '.join(entry.candidate)}: got the transform {kind}, expected one of {', '.join(TRANSFORMS)}; only "
            "those can be written down"
        )
    return {
        "reference": list(entry.reference),
        "candidate": list(entry.candidate),
        "transform": {"kind": kind, **dataclasses.asdict(entry.transform)},  # type: ignore[arg-type]
        "role": str(entry.role),
        "matched_by": entry.matched_by,
        "confirmed_by": one.confirmed_by,
        "contradicted": one.contradicted,
    }


def read_map(path: Path) -> ExportedMap:
    """Reads a file of ``parity map --export``, and checks that it is total and one-to-one.

    Args:
        path: the file.

    Raises:
        ValueError: the file is unreadable, no map, of another version, or not total and one-to-one.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"map {path}: cannot be read ({one_line(error)}), expected a file of `parity map --export`"
        ) from error
    if not isinstance(record, dict) or record.get("kind") != "parity weight map":
        raise ValueError(f"map {path}: got other JSON, expected a file of `parity map --export`")
    if record.get("schema") != SCHEMA:
        raise ValueError(
            f"map {path}: got schema {record.get('schema')}, expected {SCHEMA}; export it again with this version"
        )
    try:
        found = ExportedMap(
            case=record["case"],
            sides=(_side(record["reference"]), _side(record["candidate"])),
            entries=tuple(_entry(one) for one in record["entries"]),
            alone=(tuple(record["alone"]["reference"]), tuple(record["alone"]["candidate"])),
            versions=record["versions"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"{type(error).__name__} {one_line(error)}"
        raise ValueError(f"map {path}: damaged ({words}); export it again") from error
    if problem := _gap(found):
        raise ValueError(f"map {path}: {problem}; expected a total one-to-one map; export it again")
    return found


def _side(record: Mapping[str, Any]) -> ExportedSide:
    leaves = record["leaves"]
    return ExportedSide(
        name=record["name"],
        flavour=record["flavour"],
        leaves={
            path: msgspec.convert({**leaf, "path": path, "kind": ""}, Leaf) for path, leaf in leaves.items()
        },
        keys={path: leaf["key"] for path, leaf in leaves.items() if "key" in leaf},
        skeleton=record["tree"],
    )


def _entry(record: Mapping[str, Any]) -> Certified:
    fields = dict(record["transform"])
    transform: Transform = msgspec.convert(fields, TRANSFORMS[fields.pop("kind")])
    entry = Entry(
        reference=tuple(record["reference"]),
        candidate=tuple(record["candidate"]),
        transform=transform,
        role=Role(record["role"]),
        matched_by=record["matched_by"],
    )
    return Certified(
        entry=entry, confirmed_by=record["confirmed_by"], contradicted=bool(record["contradicted"])
    )


def _gap(found: ExportedMap) -> str:
    """Returns a message if a side's leaves are not in exactly one entry each, or not in its tree; else empty text."""
    first = [path for one in found.entries for path in one.entry.reference]
    second = [path for one in found.entries for path in one.entry.candidate]
    for side, paired, alone in zip(found.sides, (first, second), found.alone, strict=True):
        named = [*paired, *alone]
        if sorted(named) != sorted(side.leaves):
            repeated = {path for path in named if named.count(path) > 1}
            odd = sorted(set(named) ^ set(side.leaves) or repeated)
            return f"{side.name}: leaves {', '.join(odd)} are not in one entry each"
        if sorted(leaves_of(side.skeleton)) != sorted(side.leaves):
            return f"{side.name}: its tree does not hold its leaves"
    return ""
