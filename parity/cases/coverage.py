"""Combinatorial coverage: the combinations of options that a set of cases contains, and options that none varies."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = [
    "Combination",
    "Coverage",
    "Factor",
    "Space",
    "completions",
    "cover",
    "options_of",
    "refusal_of",
    "unvaried",
]

Row = Mapping[str, str]
"""``{factor: value}`` of one case; a factor without effect there is left out."""
Combination = tuple[tuple[str, str], ...]
"""Some factors with values, in the order of the factors."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor:
    """An option and its values.

    Args:
        name: name of the option, one word.
        values: ``{value: settings}``; the first is the default.
        needs: ``{other factor: values}``, all of which must hold for this factor to have an effect.
    """

    name: str
    values: Mapping[str, Any]
    needs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if len(self.values) < 2:
            raise ValueError(f"factor {self.name}: got {list(self.values)}, expected two values or more")

    @property
    def ordinary(self) -> str:
        """The default value."""
        return next(iter(self.values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Space:
    """Factors, and a function that combines their values.

    Args:
        name: for display.
        factors: a factor comes after those that it needs.
        make: row -> result; raises `ValueError` if the options are incompatible.
        thorough: factors of which all triples of values are required; for all others, all pairs.
    """

    name: str
    factors: tuple[Factor, ...]
    make: Callable[[Row], Any]
    thorough: tuple[str, ...] = ()

    @functools.cached_property
    def by_name(self) -> dict[str, Factor]:
        """The factors by name."""
        return {factor.name: factor for factor in self.factors}

    def has_say(self, factor: Factor, row: Row) -> bool:
        """True if a factor has an effect in a row, which holds the factors before it."""
        return all(row.get(name) in values for name, values in factor.needs.items())

    def complete(self, chosen: Row) -> dict[str, str] | None:
        """Returns the row with these values and defaults elsewhere; None if one of them has no effect.

        Args:
            chosen: some factors with values.
        """
        wanted = self._with_needs(chosen)
        row: dict[str, str] = {}
        for factor in self.factors:
            if self.has_say(factor, row):
                row[factor.name] = wanted.get(factor.name, factor.ordinary)
        return row if chosen.items() <= row.items() else None

    def _with_needs(self, chosen: Row) -> dict[str, str]:
        wanted = dict(chosen)
        for factor in reversed(self.factors):
            if factor.name not in wanted:
                continue
            for name, values in factor.needs.items():
                best = self.by_name[name].ordinary
                wanted.setdefault(name, best if best in values else values[0])
        return wanted

    def refusal(self, row: Row) -> str:
        """Returns the error of the options for a row; empty if they are compatible."""
        try:
            self.make(row)
        except ValueError as error:
            return str(error)
        return ""

    def combinations(self) -> Iterator[Combination]:
        """Yields every required combination: pairs, and triples of the thorough factors."""
        thorough = [factor for factor in self.factors if factor.name in self.thorough]
        for factors in (*itertools.combinations(self.factors, 2), *itertools.combinations(thorough, 3)):
            names = [factor.name for factor in factors]
            for values in itertools.product(*(factor.values for factor in factors)):
                yield tuple(zip(names, values, strict=True))

    def of_row(self, row: Row) -> Iterator[Combination]:
        """Yields the required combinations in a row."""
        items = [(factor.name, row[factor.name]) for factor in self.factors if factor.name in row]
        thorough = [item for item in items if item[0] in self.thorough]
        yield from itertools.combinations(items, 2)
        yield from itertools.combinations(thorough, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """Coverage of a space by rows.

    Args:
        space: the space.
        rows: by case.
        covered: number of combinations that are in a row.
        refused: combinations that the options refuse, with the error.
        idle: number of combinations without effect.
        missing: possible combinations that are in no row.
        rare: combinations in one row only, with its case.
    """

    space: Space
    rows: Mapping[str, Row]
    covered: int
    refused: Mapping[Combination, str]
    idle: int
    missing: tuple[Combination, ...]
    rare: Mapping[Combination, str]

    @property
    def allowed(self) -> int:
        """Number of possible combinations."""
        return self.covered + len(self.missing)

    def cases_with(self, factor: str, value: str) -> list[str]:
        """Returns the cases in which a factor has a value."""
        return [id for id, row in self.rows.items() if row.get(factor) == value]


def cover(space: Space, rows: Mapping[str, Row]) -> Coverage:
    """Returns the coverage of a space by rows.

    A combination that is in no row counts as missing, unless the options themselves refuse it.

    Args:
        space: the factors.
        rows: by case.
    """
    where: dict[Combination, list[str]] = collections.defaultdict(list)
    for id, row in rows.items():
        for combination in space.of_row(row):
            where[combination].append(id)
    refused: dict[Combination, str] = {}
    missing, idle = [], 0
    for combination in space.combinations():
        if combination in where:
            continue
        if space.complete(dict(combination)) is None:
            idle += 1
        elif because := refusal_of(space, combination, refused):
            refused[combination] = because
        else:
            missing.append(combination)
    rare = {combination: ids[0] for combination, ids in where.items() if len(ids) == 1}
    return Coverage(
        space=space,
        rows=rows,
        covered=len(where),
        refused=refused,
        idle=idle,
        missing=tuple(missing),
        rare=rare,
    )


def refusal_of(space: Space, combination: Combination, known: Mapping[Combination, str]) -> str:
    """Returns why a combination is impossible; empty if the defaults, or one other value, make it possible.

    Args:
        space: its factors.
        combination: one with an effect.
        known: smaller impossible combinations, with the reason.
    """
    for size in range(2, len(combination)):
        for part in itertools.combinations(combination, size):
            if part in known:
                return known[part]
    first = ""
    for row in completions(space, combination):
        because = space.refusal(row)
        if not because:
            return ""
        first = first or because
    return first


def completions(space: Space, combination: Combination) -> Iterator[Row]:
    """Yields the row with a combination and defaults elsewhere, then those with one more value.

    Args:
        space: its factors.
        combination: one with an effect.
    """
    chosen = dict(combination)
    others = [{}, *({name: value} for name, factor in space.by_name.items() for value in factor.values)]
    for other in others:
        row = space.complete({**other, **chosen})
        if row is not None:
            yield row


def options_of(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns ``{option: value}`` of a config; options of nested configs are joined by dots.

    Args:
        config: a mapping, an instance of a dataclass or a pydantic model; None gives no options.
        prefix: prefix of the names.

    Raises:
        TypeError: the config is of another type.
    """
    if config is None:
        return {}
    found: dict[str, Any] = {}
    for name, value in _fields(config).items():
        nested = isinstance(value, Mapping) or _is_config(value)
        found.update(options_of(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value})
    return found


def _is_config(value: Any) -> bool:
    return not isinstance(value, type) and (
        dataclasses.is_dataclass(value) or isinstance(getattr(type(value), "model_fields", None), Mapping)
    )


def _fields(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return {str(name): value for name, value in config.items()}
    if not _is_config(config):
        raise TypeError(
            f"config: got {type(config).__name__}, expected a mapping, a dataclass instance or a pydantic model"
        )
    fields = getattr(type(config), "model_fields", None)
    names = list(fields) if fields else [field.name for field in dataclasses.fields(config)]
    return {name: getattr(config, name) for name in names}


def unvaried(configs: Iterable[tuple[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns ``{pairs: {option: its only value}}`` of the options that have one value in all configs of a kind.

    An option that some configs lack counts as varied.

    Args:
        configs: name of the pair and config of each case; see `options_of`.
    """
    kinds: dict[type, dict[str, list[dict[str, str]]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for pair, config in configs:
        kind = Mapping if isinstance(config, Mapping) else type(config)
        row = {option: repr(value) for option, value in options_of(config).items()}
        kinds[kind][pair].append(row)
    found = {}
    for named in kinds.values():
        first, *rest = (row for rows in named.values() for row in rows)
        only = {
            option: value for option, value in first.items() if all(row.get(option) == value for row in rest)
        }
        found |= {", ".join(named): only} if only else {}
    return found
