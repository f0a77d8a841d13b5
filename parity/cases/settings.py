"""Settings of a project, ``[tool.parity]``, and its pairs; the built-in pairs if there are no settings."""

import dataclasses
import importlib
import os
import sys
import tomllib
import traceback
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from parity.builds.build import Build
from parity.cases.accepted import Waiver, read_budgets
from parity.cases.case import Case, Pair, matches
from parity.cases.tables import Table, read, unknown
from parity.ir.functions import ENGINE, is_users
from parity.verdicts import repeated

BUILT_IN = (
    *(f"parity.matrix.{name}:PAIR" for name in ("llama2", "sharded", "moe", "tiled", "pipeline", "diloco")),
    "parity.matrix.families:FAMILIES",
    *(f"parity.matrix.{name}:PAIR" for name in ("mtp", "batch_split", "flags", "covering", "trajectories")),
)
"""The pairs that run if no project names others, as in this repository."""


class SettingsError(ValueError):
    """The project's settings or a named pair cannot be used."""


class _Project(Table, frozen=True, kw_only=True, rename="kebab"):
    """The keys of ``[tool.parity]``; `parity.gate` and `parity.compare.timing` parse their tables."""

    pairs: Annotated[
        tuple[str, ...], msgspec.Meta(min_length=1, description='["module:ATTRIBUTE", ...]')
    ] = ()
    workers: Annotated[int, msgspec.Meta(gt=0, description="a number of processes, such as 2")] | None = None
    compile_gib: (
        Annotated[float, msgspec.Meta(gt=0, lt=1e9, description="GiB of host memory, such as 16")] | None
    ) = None
    compile_seconds: Annotated[float, msgspec.Meta(gt=0, description="seconds, such as 600")] | None = None
    cache: Annotated[str, msgspec.Meta(description='a folder, or "" for none')] | None = None
    cache_ignores: Annotated[
        tuple[str, ...],
        msgspec.Meta(description='patterns of files that no case reads, such as ["data", "*.log"]'),
    ] = ()
    waivers: Annotated[tuple[Waiver, ...], msgspec.Meta(description="tables [[tool.parity.waivers]]")] = ()
    budgets: dict[str, Any] = msgspec.field(default_factory=dict)
    flips: Annotated[dict[str, Any], msgspec.Meta(description="tables [tool.parity.flips.NAME]")] = (
        msgspec.field(default_factory=dict)
    )
    gate: dict[str, Any] = msgspec.field(default_factory=dict)
    relaxed: Annotated[list[Any], msgspec.Meta(description="tables [[tool.parity.relaxed]]")] = msgspec.field(
        default_factory=list
    )
    bench: dict[str, Any] = msgspec.field(default_factory=dict)


class Settings(_Project, frozen=True, kw_only=True):
    """Settings from ``[tool.parity]``, with budgets by ``channel.quantity``.

    Args:
        pairs: ``module:ATTRIBUTE`` of each pair; the built-in ones without a file.
        root: folder of the file, which is put on the import path; None without a file.
    """

    pairs: tuple[str, ...] = BUILT_IN
    root: Path | None = None

    @property
    def resources(self) -> dict[str, Any]:
        """Limits of a run that are set, as keyword arguments of `Resources`."""
        memory = self.compile_gib and int(self.compile_gib * 2**30)
        limits = {"workers": self.workers, "memory": memory, "seconds": self.compile_seconds}
        found: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        if self.cache is not None:
            found["cache"] = (self.root or Path()) / Path(self.cache).expanduser() if self.cache else None
        return found


def find_settings(start: Path) -> Settings:
    """Returns the settings of the nearest ``pyproject.toml`` from ``start`` upwards that has ``[tool.parity]``."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: {error}; mend the file") from error
        table = tools.get("parity") if isinstance(tools, dict) else None
        if table is None:
            continue
        try:
            project = read(_Project, table)
            budgets = read_budgets(project.budgets)
        except ValueError as error:
            raise SettingsError(f"{path} [tool.parity]: {error}") from error
        return Settings(**{**msgspec.structs.asdict(project), "budgets": budgets, "root": folder})
    return Settings()


def must_have_pairs(start: Path) -> None:
    """Raises SettingsError, which explains how to begin, if no project names its pairs."""
    if find_settings(start).root is None:
        raise SettingsError(
            f"{start}: no pyproject.toml here or above has [tool.parity]. To begin, write a pair with parity.twins in "
            'my_twins.py, and [tool.parity] pairs = ["my_twins:PAIR"] in pyproject.toml; or name it with '
            "--pair my_twins:PAIR. --builtin runs the pairs that come with parity"
        )


def load_pairs(name: str) -> list[Pair]:
    """Imports ``module:ATTRIBUTE``, a pair or a list of pairs; SettingsError if that is not there, or no pair."""
    module, _, attribute = name.partition(":")
    if not module or not attribute or module.endswith(".py"):
        raise SettingsError(f"pair {name!r}: expected module:ATTRIBUTE, such as my_models.parity:PAIR")
    try:
        pair = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # user code may raise any exception
        what = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        where = place_in_project(error) or "check the name and the import path"
        raise SettingsError(f"pair {name!r}: {what}{error}; {where}") from error
    pairs = list(pair) if isinstance(pair, list | tuple) else [pair]
    for one in pairs:
        if not isinstance(one, Pair):
            raise SettingsError(
                f"pair {name!r}: got {type(one).__name__}, expected parity.Pair, as parity.twins returns it, "
                "or a list of them"
            )
    return pairs


def place_in_project(error: BaseException) -> str:
    """Returns file, line and text of the innermost line outside this package; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"at {error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ENGINE, "<")) and "importlib" not in frame.filename
    ]
    own = [frame for frame in frames if is_users(frame.filename)] or frames
    return f"at {own[-1].filename}:{own[-1].lineno}: {own[-1].line}" if own else ""


def _load(
    names: Collection[str], extra: Sequence[str], select: Sequence[str]
) -> tuple[list[Pair], list[SettingsError]]:
    """Returns the pairs, and the errors of those that cannot be loaded: pairs whose only case fails.

    An error is raised if the command names no cases and no other pair.
    """
    pairs: list[Pair] = []
    errors: list[SettingsError] = []
    for name in names:
        try:
            pairs += load_pairs(name)
        except SettingsError as error:
            if name in extra or len(names) == 1 or not (extra or select):
                raise
            errors.append(error)
            pairs.append(_broken(name, error))
    return pairs, errors


def _broken(name: str, error: SettingsError) -> Pair:
    def build() -> Build:
        raise error

    case = Case(id=f"{name}/import@single", reference=build, candidate=build, program="import")
    return Pair(
        name=name,
        about=f"cannot be loaded: {error}",
        cases=lambda settings: [case],
        full_size=lambda settings, devices: [case],
    )


def make_importable(start: Path, settings: Settings) -> None:
    """Puts the folders of a project on the import path, after ``PYTHONPATH`` and before installed packages."""
    chosen = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    position = max(
        (index + 1 for index, entry in enumerate(sys.path) if entry and entry in chosen), default=0
    )
    for folder in (start, *filter(None, [settings.root])):
        if str(folder) not in sys.path:
            sys.path.insert(position, str(folder))


def collect(
    extra: Iterable[str] = (),
    overrides: Mapping[str, str] | None = None,
    start: Path | None = None,
    *,
    devices: int | None = None,
    select: Iterable[str] = (),
) -> tuple[list[Pair], list[Case]]:
    """Loads all pairs and their cases.

    Args:
        extra: further pairs, ``module:ATTRIBUTE``; the only ones if no project names its pairs.
        overrides: config fields to set in every case.
        start: folder from which settings are searched; the working directory by default.
        devices: if given, take the cases at published size for this many devices instead of the small ones.
        select: selectors; if given, only the selected cases must accept the overrides.

    Raises:
        SettingsError: settings or pairs cannot be used, or two cases have one id.
        ValueError: an override is invalid for the config of a selected pair.
    """
    start, overrides, select = start or Path.cwd(), overrides or {}, tuple(select)
    settings = find_settings(start)
    make_importable(start, settings)
    extra = tuple(extra)
    known = () if extra and settings.root is None else settings.pairs  # a named pair replaces the built-ins
    names = dict.fromkeys((*known, *extra))
    if not names:
        raise SettingsError(
            f"{settings.root}/pyproject.toml [tool.parity]: got no pairs, expected pairs = "
            '["module:ATTRIBUTE", ...], or --pair module:ATTRIBUTE'
        )
    pairs, errors = _load(names, extra, select)
    cases = [case for pair in pairs for case in _cases(pair, overrides, devices, select)]
    if errors and not all(any(matches(case, selector) for case in cases) for selector in select):
        raise errors[0]  # a selector may mean a case of the pair that cannot be loaded
    ids = [case.id for case in cases]
    cases = [_with_its_waivers(case, ids) for case in cases]
    if settings.budgets or settings.waivers:
        cases = [_of_project(case, settings) for case in cases]
    if not cases and overrides and select:  # refused, and none selected: report the latter
        return collect(extra, {}, start, devices=devices)
    if not cases:
        names = ", ".join(pair.name for pair in pairs)
        raise SettingsError(
            f"pairs {names}: no cases; expected at least one; see the pair's function `cases`"
        )
    if twice := sorted(repeated(case.id for case in cases)):
        raise SettingsError(f"cases {twice}: expected distinct ids; rename a pair or a variant")
    return pairs, cases


def _with_its_waivers(case: Case, ids: Sequence[str]) -> Case:
    """Returns a case without its pair's waivers of other cases; one that concerns no case at all may be mistyped."""
    kept = [one for one in case.accept.waivers if one.concerns(case.id) or not any(map(one.concerns, ids))]
    return case.with_accept(waivers=tuple(kept)) if case.accept.waivers else case


def _of_project(case: Case, settings: Settings) -> Case:
    waivers = (waiver for waiver in settings.waivers if waiver.concerns(case.id))
    budgets = {**settings.budgets, **case.accept.budgets}
    return case.with_accept(budgets=budgets, waivers=(*case.accept.waivers, *waivers))


def _cases(
    pair: Pair, overrides: Mapping[str, str], devices: int | None, select: tuple[str, ...]
) -> Sequence[Case]:
    """Returns the cases of a pair with the overrides; if some refuse them, only the selected ones."""

    def make(settings: Mapping[str, str]) -> Sequence[Case]:
        given = _Read(settings)
        cases = pair.cases(given) if devices is None else pair.full_size(given, devices)
        fields, kept = given.fields, weakref.ref(given)
        del given
        known, held = sorted(fields), kept() is not None  # a case may read it later
        for field in settings.keys() - fields if cases and not held else ():
            raise ValueError(unknown(field, known) if known else f"got {field}, but it takes no settings")
        return cases

    try:
        return make(overrides)
    except ValueError as error:
        plain = make({}) if overrides and select else ()
        selected = [case for case in plain if any(matches(case, selector) for selector in select)]
        if not plain or not all(case.explore.with_settings for case in selected):
            where = place_in_project(error)
            words = str(error).removeprefix(f"pair {pair.name}: ")
            raise SettingsError(f"pair {pair.name}: {words}{where and f'; {where}'}") from error
    found = []
    for case in selected:
        assert case.explore.with_settings
        try:
            found.append(dataclasses.replace(case.explore.with_settings(overrides), id=case.id))
        except ValueError as error:
            raise SettingsError(f"case {case.id}: {error}") from error
    return found


class _Read(Mapping[str, str]):
    """Settings that know the fields that a pair reads; one that reads all checks them itself."""

    def __init__(self, given: Mapping[str, str]):
        self._given, self.fields = given, set[str]()

    def __getitem__(self, field: str) -> str:
        self.fields.add(field)
        return self._given[field]

    def __iter__(self) -> Iterator[str]:
        self.fields.update(self._given)
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def parse_settings(
    texts: Iterable[str] | None, example: str = "embed=96", option: str = "--set"
) -> dict[str, str]:
    """Returns ``{field: value}`` of texts ``field=value``; the last value of a field counts."""
    settings = {}
    for text in texts or []:
        field, separator, value = text.partition("=")
        if not separator or not field:
            raise SettingsError(f"{option} {text!r}: expected FIELD=VALUE, such as {example}")
        settings[field] = value
    return settings
