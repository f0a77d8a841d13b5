"""Mutants: their definition, and how they are read from a folder and planted."""

import fnmatch
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parity.cases.tables import Table, read, unknown
from parity.channels import ALL
from parity.verdicts import repeated

PREFIX = "benign/"
"""Prefix of the ids of benign edits that rules make; see `campaigns.edits.benign`."""


class MutantError(ValueError):
    """A file of mutants, or a patch, cannot be used."""


class Edit(Table, frozen=True):
    """One replacement.

    Args:
        file: below the project's root, such as ``models_nnx/mlp.py``.
        old: text that the file contains exactly once; empty to append ``new``, or to create the file.
    """

    file: str
    old: str
    new: str


class Mutant(Table, frozen=True, kw_only=True):
    """A planted bug, or an edit that changes nothing and must pass.

    Args:
        case: the case that must fail; empty with ``oracle``.
        pairs: ``module:ATTRIBUTE`` of the case's pair, if the project's settings do not name it.
        oracle: a test that must fail, as pytest takes it; for shared code of both twins, and for the engine.
        channels: those that must block.
        words: texts that the output must contain, such as the place.
        origin: id in the history of real bugs; empty for others.
        benign: if True, the case must pass.
    """

    id: str
    edits: tuple[Edit, ...]
    case: str = ""
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    pairs: tuple[str, ...] = ()
    oracle: str = ""
    channels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    verdict: str = "failed"
    origin: str = ""
    benign: bool = False


def import_root(root: Path, file: str) -> Path:
    """Returns the import root of a file, relative to the project's root: the folder around its packages."""
    folder = Path(file).parent
    while (root / folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def read_mutants(*folders: Path) -> list[Mutant]:
    """Returns the mutants of all ``*.toml`` files of folders, in the order of their names, else MutantError."""
    files = [file for folder in folders for file in sorted(folder.glob("*.toml"))]
    found = [mutant for file in files for mutant in _read(file)]
    where = ", ".join(map(str, folders))
    if not found:
        raise MutantError(f"mutants {where}: no [[mutant]] in any *.toml there; expected at least one")
    if twice := sorted(repeated(mutant.id for mutant in found)):
        raise MutantError(f"mutants {where}: ids {twice} are there twice, expected distinct ones")
    return found


def _read(file: Path) -> list[Mutant]:
    try:
        tables = tomllib.loads(file.read_text()).get("mutant", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MutantError(f"mutants {file}: cannot be read: {error}") from error
    found = read(list[Mutant], tables, f"mutants {file}")
    for mutant in found:
        where = f"mutants {file}, {mutant.id!r}"
        if not mutant.edits or bool(mutant.case) == bool(mutant.oracle):
            raise MutantError(f"{where}: expected edits, and either a case or an oracle")
        if strangers := [channel for channel in mutant.channels if channel not in ALL]:
            raise MutantError(f"{where}: channels: {unknown(strangers[0], ALL)}")
    return found


def choose(mutants: Sequence[Mutant], selectors: Sequence[str]) -> list[Mutant]:
    """Returns the mutants whose id, case, oracle or origin matches a glob or prefix; MutantError for one in vain."""
    if not selectors:
        return list(mutants)

    def fits(mutant: Mutant, selector: str) -> bool:
        names = (mutant.id, mutant.case, mutant.oracle, mutant.origin)
        return any(name.startswith(selector) or fnmatch.fnmatch(name, selector) for name in names if name)

    for selector in selectors:
        if not any(fits(mutant, selector) for mutant in mutants):
            raise MutantError(
                f"select {selector!r}: matches no mutant; expected a glob or prefix of an id or case"
            )
    return [mutant for mutant in mutants if any(fits(mutant, selector) for selector in selectors)]


def plant(mutant: Mutant, folder: Path) -> None:
    """Patches the packages' copies in a folder; MutantError if a file does not contain an old text exactly once."""
    for edit in mutant.edits:
        path = folder / edit.file
        text = path.read_text() if path.exists() else ""
        if not edit.old:
            path.write_text(text + edit.new)
            continue
        if (count := text.count(edit.old)) != 1:
            raise MutantError(
                f"mutant {mutant.id}: {edit.file} has {count} times {edit.old!r}, expected once"
            )
        path.write_text(text.replace(edit.old, edit.new))
