"""Which combinations of options a set of cases covers, out of those that can be."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Combination", "Coverage", "Factor", "Space", "completions", "cover", "refusal_of", "words"]

Row = Mapping[str, str]
"""``{factor: value}`` of one case; a factor that has no say there is left out."""
Combination = tuple[tuple[str, str], ...]
"""Some factors with values, in the order of the factors."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor:
    """An option with the values that it takes.

    Args:
        name: of the option, one word.
        values: ``{value: what it sets}``; the first is the ordinary one.
        needs: ``{other factor: values}``, all of which must hold for this one to have a say.
        idle: why it has no say elsewhere; a factor with needs must tell.
    """

    name: str
    values: Mapping[str, Any]
    needs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    idle: str = ""

    def __post_init__(self):
        if len(self.values) < 2:
            raise ValueError(f"factor {self.name}: got {list(self.values)}, expected two values or more")
        if bool(self.needs) != bool(self.idle):
            raise ValueError(
                f"factor {self.name}: expected a reason, `idle`, where it needs others, only there"
            )

    @property
    def ordinary(self) -> str:
        """The value that is nothing special."""
        return next(iter(self.values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Space:
    """Factors, and what their values are combined into.

    Args:
        name: for people.
        factors: those that others need come first.
        make: row -> anything; raises `ValueError` where the options refuse each other.
        thorough: factors of which every three values must meet; of all others every two.
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
        """Returns whether a factor has a say in a row, which holds the factors before it."""
        return all(row.get(name) in values for name, values in factor.needs.items())

    def complete(self, chosen: Row) -> dict[str, str] | None:
        """Returns the row with these values that is ordinary elsewhere; None where one of them has no say.

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
        """Returns what the options say against a row; empty where they go together."""
        try:
            self.make(row)
        except ValueError as error:
            return str(error)
        return ""

    def combinations(self) -> Iterator[Combination]:
        """Yields every combination that is asked for: pairs, and triples of the thorough factors."""
        thorough = [factor for factor in self.factors if factor.name in self.thorough]
        for factors in (*itertools.combinations(self.factors, 2), *itertools.combinations(thorough, 3)):
            names = [factor.name for factor in factors]
            for values in itertools.product(*(factor.values for factor in factors)):
                yield tuple(zip(names, values, strict=True))

    def of_row(self, row: Row) -> Iterator[Combination]:
        """Yields the combinations that are asked for and are in a row."""
        items = [(factor.name, row[factor.name]) for factor in self.factors if factor.name in row]
        thorough = [item for item in items if item[0] in self.thorough]
        yield from itertools.combinations(items, 2)
        yield from itertools.combinations(thorough, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """What rows cover.

    Args:
        space: of what.
        rows: by case.
        covered: how many combinations are in a row.
        refused: combinations that the options refuse whatever the others are, with what they say.
        idle: how many combinations have no say.
        missing: combinations that could be and are in no row.
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
        """How many combinations can be."""
        return self.covered + len(self.missing)

    def cases_with(self, factor: str, value: str) -> list[str]:
        """Returns the cases in which a factor has a value."""
        return [id for id, row in self.rows.items() if row.get(factor) == value]


def cover(space: Space, rows: Mapping[str, Row]) -> Coverage:
    """Returns what rows cover of a space.

    A combination that no row has must be refused by the options themselves, or it is missing: whoever says that
    it cannot be has to show it.

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
    """Returns why a combination cannot be; empty if it can, with all else ordinary or all but one other factor.

    Args:
        space: its factors.
        combination: which has a say.
        known: smaller ones that cannot be, and why.
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
    """Yields the ordinary row with a combination, then those with one value more.

    Args:
        space: its factors.
        combination: which has a say.
    """
    chosen = dict(combination)
    others = [{}, *({name: value} for name, factor in space.by_name.items() for value in factor.values)]
    for other in others:
        row = space.complete({**other, **chosen})
        if row is not None:
            yield row


def words(rows: Iterable[Row], among: Iterable[Row], space: Space, taken: Collection[str] = ()) -> list[str]:
    """Returns a name for each row: its rarest values that are not ordinary, as many as tell it from the others.

    Args:
        rows: complete.
        among: what values are rare in.
        space: their factors.
        taken: names that others have.
    """
    counts = collections.Counter(item for row in among for item in row.items())
    names: list[str] = []
    for row in rows:
        special = [item for item in row.items() if item[1] != space.by_name[item[0]].ordinary]
        special.sort(key=lambda item: counts[item])
        sizes = range(min(3, len(special)), len(special) + 1)
        short = ["-".join(value for _, value in special[:size]) or "ordinary" for size in sizes]
        more = (f"{short[-1]}-{number}" for number in itertools.count(2))
        free = (name for name in itertools.chain(short, more) if name not in taken and name not in names)
        names.append(next(free))
    return names
