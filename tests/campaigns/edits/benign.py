"""Generates benign edits: applies rewriting rules at places of a project that some case executes."""

import dataclasses
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from campaigns.edits.armed import Lines, lines_of_cases
from campaigns.edits.rewrites import RULES, Patch, Rule, Source, patched
from campaigns.edits.rewrites.source import FUNCTIONS
from parity.cases.tables import Table, read
from parity.compare.backends.workers import Pool
from parity.mutants.mutant import PREFIX, Edit, Mutant, MutantError, import_root

__all__ = ["Field", "benign_mutants", "read_fields"]


class Field(Table, frozen=True, kw_only=True):
    """Files to be rewritten, and the cases that detect a change.

    Args:
        files: globs below the project's root.
        cases: selectors of cases; empty for all cases of the pairs.
        pairs: ``module:ATTRIBUTE`` if the project's settings do not name them; ``{file}`` is the name of each file.
        pure: dotted prefixes of the project's functions that have no effect and draw nothing.
        share: weight of these files among all fields.
    """

    files: tuple[str, ...]
    cases: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    pure: tuple[str, ...] = ()
    share: int = 1


def read_fields(folder: Path) -> list[Field]:
    """Returns the tables ``[[benign]]`` of all ``*.toml`` files of a folder.

    Raises:
        MutantError: there is none, or a file cannot be read.
    """
    found = []
    for file in sorted(folder.glob("*.toml")):
        try:
            tables = tomllib.loads(file.read_text()).get("benign", [])
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise MutantError(f"mutants {file}: cannot be read: {error}") from error
        fields = read(list[Field], tables, f"mutants {file}, [[benign]]")
        if any(not field.files or not (field.cases or field.pairs) for field in fields):
            raise MutantError(f"mutants {file}, [[benign]]: expected files, and cases or pairs")
        found += fields
    if not found:
        raise MutantError(
            f"mutants {folder}: no [[benign]] in any *.toml there: it says which files may be rewritten"
        )
    return found


def benign_mutants(
    fields: Sequence[Field], root: Path, sources: str, count: int, seed: int, pool: Pool
) -> list[Mutant]:
    """Returns benign edits, rules and files alternately; deterministic for given sources and seed.

    Args:
        fields: files that may be rewritten.
        root: root of the project.
        sources: digest of the project.
        count: how many are wanted; fewer if there are no more places.
        seed: chooses among them.
        pool: runs the cases, whose lines are recorded.

    Raises:
        MutantError: a field matches no file.
        ValueError: its cases cannot be run.
    """
    places = [place for field in fields for place in _places(field, root)]
    armed = {place: lines_of_cases(root, sources, *place.asked, pool) for place in places}
    draw = random.Random(seed)
    rows = {
        rule.name: _sites(rule, [place for place in places for _ in range(place.field.share)], armed, draw)
        for rule in RULES
    }
    chosen: dict[str, Mutant] = {}
    while rows and len(chosen) < count:
        for name in list(rows):
            one = next((one for one in rows[name] if one.id not in chosen), None)
            if one is None:
                del rows[name]
            elif len(chosen) < count:
                chosen[one.id] = one
    return list(chosen.values())


@dataclasses.dataclass(frozen=True)
class _Place:
    """A file, and the means to find its cases."""

    file: str
    root: Path
    field: Field

    @property
    def pairs(self) -> tuple[str, ...]:
        return tuple(pair.format(file=Path(self.file).stem) for pair in self.field.pairs)

    @property
    def asked(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Path, ...]]:
        """Selectors, pairs, and the folders that the pairs are imported from."""
        return self.field.cases, self.pairs, (self.root / import_root(self.root, self.file),)


def _places(field: Field, root: Path) -> list[_Place]:
    files = sorted({path.relative_to(root) for glob in field.files for path in root.glob(glob)})
    if not files:
        raise MutantError(f"mutants, [[benign]]: files {', '.join(field.files)} match none below {root}")
    return [_Place(str(file), root, field) for file in files]


def _sites(
    rule: Rule, places: Sequence[_Place], armed: Mapping[_Place, Lines], draw: random.Random
) -> Iterator[Mutant]:
    """Yields the edits of a rule, one per file at a time, in an order that the draw decides."""
    order = list(places)
    draw.shuffle(order)
    seed = draw.random()
    waiting: dict[_Place, Iterator[Mutant]] = {}
    while order:
        for place in list(order):
            if place not in waiting:
                waiting[place] = _in_file(rule, place, armed[place], random.Random(f"{seed} {place.file}"))
            one = next(waiting[place], None)
            if one is None:
                order = [other for other in order if other != place]
            else:
                yield one


def _in_file(rule: Rule, place: _Place, lines: Lines, draw: random.Random) -> Iterator[Mutant]:
    source = _source(place)
    sites = list(rule.sites(source))
    draw.shuffle(sites)
    for patches in sites:
        touched = _touched(source, patches)
        cases = [case for case, files in lines.items() if touched & files.get(place.file, frozenset())]
        if cases:
            first = min(patches)
            number = source.lines_of(first).start
            column = first.start - source.data.rfind(b"\n", 0, first.start)
            yield Mutant(
                id=f"{PREFIX}{rule.name}/{place.file}:{number}:{column}",
                edits=(_edit(source, patches),),
                case=draw.choice(cases),
                pairs=place.pairs,
                benign=True,
            )


_SOURCES: dict[tuple[str, Path], Source] = {}


def _source(place: _Place) -> Source:
    key = place.file, place.root
    if key not in _SOURCES:
        others = [*_others(place), *map(repr, place.pairs)]
        _SOURCES[key] = Source((place.root / place.file).read_text(), place.file, others, place.field.pure)
    return _SOURCES[key]


def _others(place: _Place) -> list[str]:
    """Returns texts of files that may use this one's names: those nearby, and those that name its package."""
    file, home = place.root / place.file, import_root(place.root, place.file)
    package = Path(place.file).relative_to(home).parts[0].removesuffix(".py")
    folders = [file.parent, *(path.parent for path in place.root.glob("*/__init__.py"))]
    paths = {path for folder in folders for path in folder.rglob("*.py") if "__pycache__" not in path.parts}
    near = place.root / home / package if file.parent != place.root / home else file.parent
    texts = {path: path.read_text() for path in sorted(paths - {file})}
    return [text for path, text in texts.items() if path.is_relative_to(near) or package in text]


def _touched(source: Source, patches: Sequence[Patch]) -> set[int]:
    """Returns the lines of which a case must run at least one for an edit to have an effect.

    These are its lines, or those of a body that it opens. Outside functions they are all lines: imports run that code.
    """
    lines = {number for patch in patches for number in source.lines_of(patch)}
    functions = list(source.nodes(*FUNCTIONS))
    if not any(node.lineno <= number <= (node.end_lineno or 0) for node in functions for number in lines):
        return set(range(1, source.data.count(b"\n") + 2))
    for node in functions:
        if lines & set(range(node.lineno, (node.body[0].end_lineno or 0) + 1)):
            lines |= {
                number for one in node.body[:2] for number in range(one.lineno, (one.end_lineno or 0) + 1)
            }
    return lines


def _edit(source: Source, patches: Sequence[Patch]) -> Edit:
    """Returns the edit of whole lines that holds all patches; its old text occurs once in the file."""
    new = patched(source.data, patches)
    old_lines, new_lines = source.text.splitlines(keepends=True), new.splitlines(keepends=True)
    begin = next(
        (n for n, (old, one) in enumerate(zip(old_lines, new_lines, strict=False)) if old != one),
        min(len(old_lines), len(new_lines)),
    )
    end = 0
    most = min(len(old_lines), len(new_lines)) - begin
    while end < most and old_lines[-1 - end] == new_lines[-1 - end]:
        end += 1
    while source.text.count(old := "".join(old_lines[begin : len(old_lines) - end])) != 1 or not old:
        begin, end = max(begin - 1, 0), max(end - 1, 0)
    return Edit(file=source.file, old=old, new="".join(new_lines[begin : len(new_lines) - end]))
