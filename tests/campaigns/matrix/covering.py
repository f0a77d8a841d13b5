"""Chooses the cases: ``python tests/campaigns matrix.covering`` rewrites `rows.json` and `covering.json`.

Only the configs determine which options are compatible: a value is used if they accept it. Existing rows are kept
as long as they are valid, so that ids are stable.
"""

import collections
import dataclasses
import enum
import itertools
import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from campaigns.matrix.coverage import SPACES, Combination, Factor, Space, completions, refusal_of
from campaigns.matrix.rows import FACTORS, ROWS, read_rows, recipe
from parity.matrix.covering import PATH

__all__ = ["choose", "main", "record", "words"]

TRIES = 6
"""Rows generated for each that is kept: the one that covers most."""

RUN_EVERY = 16
"""One case in this many is also compiled and run, even if proved: the last one without the factor `HEAVY`."""
HEAVY = ("repeats", "repeats")
"""The value that makes a case take minutes to compile: a pipeline with several repeats."""

Row = dict[str, str]


def choose(space: Space, kept: Iterable[Mapping[str, str]] = ()) -> list[Row]:
    """Returns rows that cover every combination that a space requires and the options allow.

    Greedy: each row is the one of `TRIES` with the largest share of uncovered combinations.

    Args:
        space: factors and the rows that they form.
        kept: rows to begin with.
    """
    rng, code = random.Random(0), _Code(space)
    rows = [dict(row) for row in kept if row == space.complete(row) and not space.refusal(row)]
    todo = {code.of(combination): combination for combination in _allowed(space)}
    for row in rows:
        _strike(todo, code, row)
    while todo:
        seeds = [next(iter(todo.values())), *rng.sample(list(todo.values()), min(TRIES, len(todo)) - 1)]
        tries = [_grown(code, seed, todo, rng) for seed in seeds]
        best = max(tries, key=lambda row: _share(todo, code, row))
        _strike(todo, code, best)
        rows.append(best)
    return rows


class _Code:
    """Values as bits, so that a combination is a number regardless of its order."""

    def __init__(self, space: Space):
        self.space = space
        items = [(factor.name, value) for factor in space.factors for value in factor.values]
        self.bits = {item: 1 << place for place, item in enumerate(items)}

    def of(self, combination: Iterable[tuple[str, str]]) -> int:
        return sum(self.bits[item] for item in combination)

    def parts(self, row: Mapping[str, str]) -> Iterator[int]:
        return map(self.of, self.space.of_row(row))


def _allowed(space: Space) -> Iterator[Combination]:
    refused: dict[Combination, str] = {}
    for combination in space.combinations():
        if space.complete(dict(combination)) is None:
            continue
        if because := refusal_of(space, combination, refused):
            refused[combination] = because
        else:
            yield combination


def _strike(todo: dict[int, Combination], code: _Code, row: Row) -> None:
    for part in code.parts(row):
        todo.pop(part, None)


def _share(todo: Mapping[int, Combination], code: _Code, row: Row) -> float:
    """Returns the uncovered share of a row's combinations; a share, because rows with more options take longer."""
    new = [part in todo for part in code.parts(row)]
    return sum(new) / len(new)


def _grown(code: _Code, seed: Combination, todo: Mapping[int, Combination], rng: random.Random) -> Row:
    """Returns a row with a combination; each further factor takes the value that covers most with those before."""
    space = code.space
    whole = dict(next(row for row in completions(space, seed) if not space.refusal(row)))
    ordinary = space.complete(dict(seed)) or {}
    chosen = dict(seed)
    if space.refusal(ordinary):  # a single unusual value makes it valid
        chosen |= {name: value for name, value in whole.items() if ordinary.get(name) != value}
    order = [factor for factor in space.factors if factor.name not in chosen]
    rng.shuffle(order)
    for factor in sorted(
        order, key=lambda factor: bool(factor.needs)
    ):  # independent factors first: none is included only for its dependants
        values = list(factor.values)
        rng.shuffle(values)
        gains = dict(zip(values, _gains(code, chosen, factor, values, todo), strict=True))
        for value in sorted(values, key=lambda value: -gains[value]):
            row = space.complete({**chosen, factor.name: value})
            if row is not None and not space.refusal(row):
                chosen, whole = {**chosen, factor.name: value}, dict(row)
                break
    return dict(whole)


def _gains(
    code: _Code, chosen: Row, factor: Factor, values: list[str], todo: Mapping[int, Combination]
) -> list[int]:
    """Returns, for each value of a factor, the number of uncovered combinations with the chosen values."""
    others = [code.bits[item] for item in chosen.items()]
    if factor.name in code.space.thorough:
        thorough = [code.bits[item] for item in chosen.items() if item[0] in code.space.thorough]
        others += [one | other for one, other in itertools.combinations(thorough, 2)]
    bits = [code.bits[factor.name, value] for value in values]
    return [sum((bit | other) in todo for other in others) for bit in bits]


def words(rows: Iterable[Row], among: Iterable[Row], space: Space, taken: Collection[str] = ()) -> list[str]:
    """Returns a name for each row: its rarest non-default values, as many as make the name unique.

    Args:
        rows: complete.
        among: the rows in which values are counted.
        space: their factors.
        taken: names that are already used.
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


def main() -> None:
    """Writes the cases of all spaces."""
    before = read_rows() if ROWS.exists() else {}
    chosen = {}
    for space in SPACES:
        known = before.get(space.name, {})
        rows = choose(space, known.values())
        names = {json.dumps(row): name for name, row in known.items()}
        fresh = [row for row in rows if json.dumps(row) not in names]
        names |= zip(map(json.dumps, fresh), words(fresh, rows, space, set(names.values())), strict=True)
        chosen[space.name] = {names[json.dumps(row)]: row for row in rows}
    ROWS.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    PATH.write_text(record(chosen), encoding="utf-8")


def record(chosen: Mapping[str, Mapping[str, Row]]) -> str:
    """Returns the configs of rows as the JSON that `parity.matrix.covering` reads, one case a line."""
    lines = []
    for space, rows in chosen.items():
        run = _run(list(rows.items()))
        for name, row in rows.items():
            variant, program, mesh = recipe(FACTORS[space], row)
            parts = {part: _recorded(value) for part, value in _changed(variant).items()}
            whole = {"parts": parts, "program": program, "mesh": mesh, "run": name in run}
            lines.append(f"{json.dumps(name)}: {json.dumps(whole, separators=(',', ':'))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _recorded(value: Any) -> Any:
    """Returns a value of a config as `parity.matrix.covering.made` reads it."""
    if dataclasses.is_dataclass(value):
        return {type(value).__name__: {name: _recorded(part) for name, part in _changed(value).items()}}
    if isinstance(value, enum.Enum):
        return {type(value).__name__: value.value}
    return [_recorded(part) for part in value] if isinstance(value, tuple) else value


def _changed(config: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that do not have their default."""
    found = {}
    for field in dataclasses.fields(config):
        factory = field.default_factory
        default = field.default if isinstance(factory, type(dataclasses.MISSING)) else factory()
        if (value := getattr(config, field.name)) != default and field.name != "name":
            found[field.name] = value
    return found


def _run(rows: list[tuple[str, Mapping[str, str]]]) -> set[str]:
    groups = (rows[start : start + RUN_EVERY] for start in range(0, len(rows) - RUN_EVERY + 1, RUN_EVERY))
    light = ([name for name, row in group if HEAVY not in row.items()] for group in groups)
    return {names[-1] for names in light}


if __name__ == "__main__":
    main()
