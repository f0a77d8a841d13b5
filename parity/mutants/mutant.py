"""What a mutant is, and how a folder of them is read."""

import dataclasses
import fnmatch
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.channels import ALL

__all__ = [
    "PREFIX",
    "Edit",
    "Mutant",
    "MutantError",
    "choose",
    "find_old",
    "import_root",
    "plant",
    "read_mutants",
]

PREFIX = "benign/"
"""Of the ids of benign edits that rules make; see `campaigns.edits.benign`."""


class MutantError(ValueError):
    """A file of mutants, or a patch, that cannot be used."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """One replacement.

    Args:
        file: below the project's root, such as ``models_nnx/mlp.py``.
        old: stands there exactly once; empty where ``new`` goes to the end, or is a new file.
        new: what stands there afterwards.
    """

    file: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A planted bug, or an edit that changes nothing and must pass.

    Args:
        id: unique in all files.
        edits: the patch.
        case: the case that shall tell; empty with ``oracle``.
        settings: of the case, as ``--set`` takes them.
        pairs: ``module:ATTRIBUTE`` of the case's pair, where the project's settings do not name it.
        oracle: a test that shall fail, as pytest takes it; for what both twins share, and for the engine.
        channels: those that must block.
        words: what the findings must have: the place.
        verdict: what the case comes to.
        origin: id in the history of real bugs; empty for others.
        benign: the case must pass.
    """

    id: str
    edits: tuple[Edit, ...]
    case: str = ""
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pairs: tuple[str, ...] = ()
    oracle: str = ""
    channels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    verdict: str = "failed"
    origin: str = ""
    benign: bool = False

    @property
    def packages(self) -> list[str]:
        """The top-level packages that the patch touches."""
        return sorted({edit.file.split("/")[0] for edit in self.edits})


def import_root(root: Path, file: str) -> Path:
    """Returns the folder, below a project's root, that a file is imported from: the one around its packages."""
    folder = Path(file).parent
    while (root / folder / "__init__.py").exists():
        folder = folder.parent
    return folder


FIELDS = {field.name for field in dataclasses.fields(Mutant)}


def read_mutants(*folders: Path) -> list[Mutant]:
    """Returns the mutants of all ``*.toml`` files of folders, in the order of their names.

    Raises:
        MutantError: there are none, a file cannot be read, a field is not known, an id is there twice.
    """
    files = [file for folder in folders for file in sorted(folder.glob("*.toml"))]
    found = [mutant for file in files for mutant in _read(file)]
    where = ", ".join(map(str, folders))
    if not found:
        raise MutantError(f"mutants {where}: no [[mutant]] in any *.toml there; expected at least one")
    ids = [mutant.id for mutant in found]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise MutantError(f"mutants {where}: ids {twice} are there twice, expected distinct ones")
    return found


def _read(file: Path) -> Iterable[Mutant]:
    try:
        tables = tomllib.loads(file.read_text()).get("mutant", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MutantError(f"mutants {file}: cannot be read: {error}") from error
    return [_mutant(file, table) for table in tables]


def _mutant(file: Path, table: Mapping[str, Any]) -> Mutant:
    where = f"mutants {file}, {table.get('id', 'one without id')!r}"
    if unknown := sorted(set(table) - FIELDS):
        raise MutantError(f"{where}: got fields {unknown}, expected some of {sorted(FIELDS)}")
    if "id" not in table or not table.get("edits") or bool(table.get("case")) == bool(table.get("oracle")):
        raise MutantError(f"{where}: expected id, edits, and either a case or an oracle")
    if strangers := sorted(set(table.get("channels", ())) - set(ALL)):
        raise MutantError(f"{where}: got channels {strangers}, expected some of {', '.join(ALL)}")
    try:
        edits = tuple(Edit(**edit) for edit in table["edits"])
    except TypeError as error:
        raise MutantError(f"{where}: an edit has file, old and new; {error}") from error
    lists = {name: tuple(table.get(name, ())) for name in ("channels", "words", "pairs")}
    return Mutant(**{**table, **lists, "edits": edits})


def choose(mutants: Sequence[Mutant], selectors: Sequence[str]) -> list[Mutant]:
    """Returns those whose id, case or oracle a glob or prefix selects; all without selectors.

    Raises:
        MutantError: a selector selects none.
    """
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
    """Patches the packages' copies in a folder.

    Raises:
        MutantError: a file does not have an old text exactly once.
    """
    for edit in mutant.edits:
        path = folder / edit.file
        text = path.read_text() if path.exists() else ""
        if not edit.old:
            path.write_text(text + edit.new)
            continue
        spans = find_old(text, edit.old)
        if len(spans) != 1:
            raise MutantError(
                f"mutant {mutant.id}: {edit.file} has {len(spans)} times {edit.old!r}, expected once"
            )
        path.write_text(text[: spans[0][0]] + edit.new + text[spans[0][1] :])


def find_old(text: str, old: str) -> list[tuple[int, int]]:
    """Returns the places of a text in a source: as it is written, else with the lines broken in other places.

    So a planted bug outlives the formatter: white space may differ, and a comma before a closing bracket.
    """
    return _spans(re.escape(old), text) or _spans(_wrapped(old), text)


def _spans(pattern: str, text: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(pattern, text)]


def _wrapped(old: str) -> str:
    """Returns a pattern of a text, whatever the breaks and indents of its lines."""
    inner = old.strip()
    before, _, after = old.partition(inner)
    tokens = re.findall(r"\w+|[^\w\s]", re.sub(r",\s*(?=[)\]}])", "", inner))
    pattern = re.escape(tokens[0])
    for last, token in itertools.pairwise(tokens):
        words = last[-1].isalnum() and token[0].isalnum()
        gap = r"\s+" if words else r"\s*,?\s*" if token in ")]}" else r"\s*"
        pattern += gap + re.escape(token)
    edges = [re.sub(r"[ \t]+", r"[ \\t]*", edge) for edge in (before, after)]
    return edges[0] + pattern + edges[1]
