"""Coverage of combinations of options: those that the rows of the covering matrix contain, and those missing."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from campaigns.matrix.factors import RECIPE, Factor
from campaigns.matrix.rows import FACTORS, Configuration, read_rows, recipe
from models_nnx.shared.config import ConfigError

UNRULED = "none: JAX has no rule that runs a grouped product for several {} on an explicit mesh"
EXPLICIT = (("mode", "explicit"), ("dispatch", "dropless"))
ONE_TOKEN = "another mesh: one token does not divide over context"
WRITTEN: Mapping[tuple[tuple[str, str], ...], str] = {
    (("program", "generate"), ("mesh", "context_tensor")): ONE_TOKEN,
    (("program", "sample"), ("mesh", "context_tensor")): ONE_TOKEN,
    (("pipeline", "stages"), *EXPLICIT): UNRULED.format("stages"),
    (*EXPLICIT, ("replicas", "replicas")): UNRULED.format("replicas"),
    (*EXPLICIT, ("replicas", "streaming")): UNRULED.format("replicas"),
}
"""Combinations that the configs cannot refuse, because they do not know the mesh, with the reason; tracing fails."""


Row = Mapping[str, str]
"""``{factor: value}`` of one case; a factor without effect there is left out."""
Combination = tuple[tuple[str, str], ...]
"""Some factors with values, in the order of the factors."""


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


def _space(name: str, factors: tuple[Factor, ...], *thorough: str) -> Space:
    def make(row: Mapping[str, str]) -> Configuration:
        for combination, reason in WRITTEN.items():
            if dict(combination).items() <= row.items():
                raise ConfigError(*combination[0], reason)
        return recipe(factors, row)

    return Space(name=name, factors=factors, thorough=thorough, make=make)


SPACES = (
    _space("training", FACTORS["training"], *(factor.name for factor in RECIPE)),
    _space("decoding", FACTORS["decoding"]),
)


def coverage() -> list[Coverage]:
    """Returns the coverage of the chosen rows, by space."""
    chosen = read_rows()
    return [cover(space, chosen[space.name]) for space in SPACES]
