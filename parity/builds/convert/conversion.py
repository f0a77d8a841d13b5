"""Converts a checkpoint of one side to one of the other, bit for bit, with an exported map."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from parity.builds.convert.exported import Certified, ExportedLeaf, ExportedMap, ExportedSide
from parity.builds.convert.stored import Stored, check_new, read_stored, write_stored
from parity.builds.skeleton import Skeleton, fill, leaves_of
from parity.builds.tree import Role, differing
from parity.builds.weights.map import WeightMap, strip_container
from parity.verdicts import SIDES, listed

SHOWN = 12
"""Maximum number of leaves that a message lists; the remaining ones are counted."""

ANOTHER_MODEL = "export the map of the model that this checkpoint is of"
OTHER_NUMBERS = "numbers would not stay what they are; make both sides hold the same dtype"

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """Result of a conversion.

    Args:
        moved: number of written entries whose transform is not the identity.
        retyped: counters whose integer dtype changed, as text.
        left: RNG leaves of the source that the target does not have.
        missing: RNG leaves of the target that the source does not have.
    """

    source: str
    target: str
    read: Path
    roles: Mapping[str, int]
    moved: int
    retyped: tuple[str, ...]
    left: tuple[str, ...]
    missing: tuple[str, ...]


def convert(exported: ExportedMap, source: Path, dest: Path, to: str = "", root: str = "") -> Conversion:
    """Writes the checkpoint of the other side with bit-identical numbers.

    Args:
        source: an Orbax checkpoint of one side: its whole state, or only its parameters.
        to: ``reference``, ``candidate`` or a flavour; only needed if the names of the source fit both sides.
        root: a branch of the target's tree to write alone, such as ``model``.

    Raises:
        ValueError: the checkpoint does not fit the map, or an entry is only guessed; nothing is written.
    """
    check_new(dest)
    forced = None if not to else _side_named(exported, to)
    stored = read_stored(source)
    at, found = _recognised(exported, stored, None if forced is None else 1 - forced)
    first, second = exported.sides[at], exported.sides[1 - at]
    alone = set(exported.alone[SIDES[at]])
    entries = [one for one in exported.entries if found.keys() >= set((one.reference, one.candidate)[at])]
    arrays = {
        path: _fitted(path, first.leaves[path], array, "as in the map", ANOTHER_MODEL)
        for path, array in found.items()
        if path not in alone
    }
    weights = WeightMap(entries=tuple(entries))
    there, back = (weights.to_candidate, weights.to_reference)[:: -1 if at else 1]
    moved = there(arrays)
    _must_come_back(arrays, back(moved))
    written = {
        path: _fitted(path, second.leaves[path], array, f"of {second.name}", OTHER_NUMBERS)
        for path, array in moved.items()
    }
    _must_be_certain(entries)
    branch = _branch(second, root)
    written = {path: written[path] for path in leaves_of(branch) if path in written}
    if not written:
        raise ValueError(
            f"--root {root}: got none of its leaves in {stored.folder}, expected some; leave it out"
        )
    write_stored(dest, fill(branch, {path: _as_key(second, path, array) for path, array in written.items()}))
    return Conversion(
        source=first.name,
        target=second.name,
        read=stored.folder,
        roles=collections.Counter(str(second.leaves[path].role) for path in written),
        moved=sum(
            str(one.transform) != "identity" and (one.candidate, one.reference)[at][0] in written
            for one in entries
        ),
        retyped=tuple(_retyped(entries, at, found, written)),
        left=tuple(sorted(alone & set(found))),
        missing=tuple(path for path in exported.alone[SIDES[1 - at]] if path in leaves_of(branch)),
    )


def _side_named(exported: ExportedMap, to: str) -> int:
    flavours = [side.flavour for side in exported.sides]
    names = SIDES if len(set(flavours)) == 1 else (*SIDES, *flavours)
    if to not in names:
        raise ValueError(f"--to {to!r}: expected one of {', '.join(names)}")
    return SIDES.index(to) if to in SIDES else flavours.index(to)


def _recognised(exported: ExportedMap, stored: Stored, side: int | None) -> tuple[int, Arrays]:
    """Returns the index of the side that a checkpoint belongs to, and its arrays by that side's paths.

    Names must be those of the side. If no side fits, names are compared without holders such as ``params`` and
    ``model``.
    """
    trees = exported.reference.tree, exported.candidate.tree
    either = trees[0] == trees[1] and WeightMap(entries=exported.entries).is_identity
    matches: dict[int, _Match] = {}
    for names in (str, strip_container):
        sides = [at for at in (0, 1) if side in (None, at)]
        matches = {at: _matched(exported.sides[at], stored, names) for at in sides}
        fits = [at for at, match in matches.items() if not match.odd and not match.lacks]
        if len(fits) == 1 or (fits and either):
            return fits[0], matches[fits[0]].arrays
        if fits:
            flavours = [one.flavour for one in exported.sides]
            one, other = flavours if flavours[0] != flavours[1] else SIDES
            raise ValueError(
                f"{stored.folder}: its names fit both sides, expected to be told which to write; add --to {one} "
                f"or --to {other}"
            )
    at, nearest = max(matches.items(), key=lambda item: len(item[1].arrays))
    name = exported.sides[at].name
    raise ValueError(
        f"{stored.folder}: leaves that {name} does not have: {_listed(nearest.odd)}; leaves of it that are missing: "
        f"{_listed(nearest.lacks)}; expected the state of {exported.case}, whole or its parameters; name another "
        "checkpoint, or export the map of the case that this one is of"
    )


class _Match(NamedTuple):
    """A checkpoint read as that of a side.

    Args:
        arrays: by the side's paths.
        odd: stored leaves that the side does not have.
        lacks: missing leaves of roles of which some are stored, and missing parameters.
    """

    arrays: Arrays
    odd: Sequence[str]
    lacks: Sequence[str]


def _matched(side: ExportedSide, stored: Stored, names: Callable[[str], str]) -> _Match:
    paths = {names(path): path for path in side.leaves}
    given = {names(path): path for path in stored.arrays}  # two of one name cannot both be read
    odd = [path for path in stored.arrays if names(path) not in paths or given[names(path)] != path]
    arrays = {paths[name]: stored.arrays[path] for name, path in given.items() if name in paths}
    roles = {side.leaves[path].role for path in arrays} | {Role.PARAMS}
    missing = {path: leaf.role for path, leaf in side.leaves.items() if path not in arrays}
    return _Match(arrays, odd, [path for path, role in missing.items() if role in roles - {Role.RNG}])


def _listed(names: Sequence[str]) -> str:
    return listed(sorted(names), SHOWN) or "none"


def _must_be_certain(entries: Sequence[Certified]) -> None:
    doubtful = [
        f"{' + '.join(one.reference)} with {' + '.join(one.candidate)} ({one.doubt})"
        for one in entries
        if one.doubt
    ]
    if doubtful:
        raise ValueError(
            f"map: {len(doubtful)} of {len(entries)} entries are only guessed: {_listed(doubtful)}; expected each to "
            "be named, proved or probed; give the pair weight rules, or export the map of a case that uses them"
        )


def _fitted(path: str, leaf: ExportedLeaf, array: np.ndarray, whose: str, advice: str) -> np.ndarray:
    """Returns an array, uint32 data for a key, in a leaf's dtype; only a counter may be in another integer dtype."""
    is_key = leaf.dtype.startswith("key<")
    shape, dtype = array.shape, jax.numpy.dtype("uint32" if is_key else leaf.dtype)
    if shape[: len(leaf.shape)] == leaf.shape and (is_key or len(shape) == len(leaf.shape)):
        if array.dtype == dtype:
            return array
        is_counter = not shape and not is_key and {array.dtype.kind, dtype.kind} <= {"i", "u"}
        if is_counter and int(same := array.astype(dtype)) == int(array):
            return same
    wanted = f"the uint32 data of {leaf.dtype}" if is_key else f"{leaf.dtype}{list(leaf.shape)}"
    raise ValueError(f"{path}: got {array.dtype}{list(shape)}, expected {wanted} {whose}; {advice}")


def _must_come_back(arrays: Arrays, back: Arrays) -> None:
    if lost := differing(arrays, back):
        raise ValueError(
            f"map: {_listed(lost)} do not come back the same; expected a one-to-one map; export it again"
        )


def _retyped(entries: Sequence[Certified], at: int, found: Arrays, written: Arrays) -> Iterator[str]:
    for one in entries:
        first, second = (one.reference, one.candidate)[:: -1 if at else 1]
        before, after = found[first[0]], written.get(second[0])
        if after is not None and not before.shape and before.dtype != after.dtype:
            yield f"{second[0]} {before.dtype} -> {after.dtype} ({int(after)})"


def _as_key(side: ExportedSide, path: str, array: np.ndarray) -> Any:
    plain = np.array(array, order="C")
    key = side.leaves[path].key
    return jax.random.wrap_key_data(jax.numpy.asarray(plain), impl=key) if key else plain


def _branch(side: ExportedSide, root: str) -> Skeleton:
    """Returns the tree to write, or the branch at ``root``."""
    tree = side.tree
    for name in filter(None, root.split("/")):
        if not isinstance(tree, dict) or name not in tree:
            names = ", ".join(tree) if isinstance(tree, dict) else "no names"
            raise ValueError(f"--root {root}: got {name}, expected one of {names}")
        tree = tree[name]
    return tree
