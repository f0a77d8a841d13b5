"""Counts of combinations, against all rows of a small space, written out."""

import itertools

import pytest
from campaigns.matrix.coverage import Factor, Space, cover
from campaigns.matrix.covering import choose, words

COLOURS = ("red", "green", "blue")


def only_where(row):
    """Blue is never big; a red wooden row takes no round lid."""
    if row["colour"] == "blue" and row["size"] == "big":
        raise ValueError("blue is never big")
    if row.get("lid") == "round" and row["stuff"] == "wood" and row["colour"] == "red":
        raise ValueError("no red wood takes a round lid")
    return row


def factor(name, *values, **rest):
    return Factor(name=name, values={value: {} for value in values}, **rest)


SPACE = Space(
    name="boxes",
    factors=(
        factor("colour", *COLOURS),
        factor("size", "small", "big"),
        factor("stuff", "paper", "wood", "tin"),
        factor("kind", "bag", "box"),
        factor("lid", "flat", "round", needs={"kind": ("box",)}),
        factor("lock", "none", "key", needs={"lid": ("flat",)}),
    ),
    make=only_where,
    thorough=("colour", "size", "stuff", "lid"),
)


def all_rows():
    """Every possible row, by plain loops."""
    for colour, size, stuff in itertools.product(COLOURS, ("small", "big"), ("paper", "wood", "tin")):
        row = {"colour": colour, "size": size, "stuff": stuff}
        tails = [{"kind": "bag"}, {"kind": "box", "lid": "round"}]
        tails += [{"kind": "box", "lid": "flat", "lock": lock} for lock in ("none", "key")]
        for tail in tails:
            whole = {**row, **tail}
            if not (colour == "blue" and size == "big") and not (
                whole.get("lid") == "round" and stuff == "wood" and colour == "red"
            ):
                yield whole


def parts(row):
    """The pairs of a row, and the triples of its thorough factors."""
    thorough = [item for item in row.items() if item[0] in SPACE.thorough]
    return {*itertools.combinations(row.items(), 2), *itertools.combinations(thorough, 3)}


POSSIBLE = set().union(*map(parts, all_rows()))


def test_all_rows_cover_all_that_can_be():
    found = cover(SPACE, dict(enumerate(all_rows())))
    assert not found.missing
    assert found.covered == found.allowed == len(POSSIBLE)
    assert all(parts(row).isdisjoint(found.refused) for row in all_rows())
    assert (("colour", "blue"), ("size", "big")) in found.refused
    assert (("colour", "red"), ("stuff", "wood"), ("lid", "round")) in found.refused


def test_chosen_rows_cover_all_that_can_be_in_far_fewer():
    rows = choose(SPACE)
    assert set().union(*map(parts, rows)) == POSSIBLE
    assert all(row in list(all_rows()) for row in rows)
    assert len(rows) < len(list(all_rows())) * 2 / 3


def test_the_same_rows_are_chosen_again_and_kept_ones_stay():
    rows = choose(SPACE)
    assert choose(SPACE) == rows
    assert choose(SPACE, rows) == rows
    assert choose(SPACE, rows[:3])[:3] == rows[:3]
    stale = {**rows[0], "colour": "blue", "size": "big"}
    assert stale not in choose(SPACE, [stale])


def test_removing_a_row_names_the_combination_that_only_it_covers():
    rows = {str(number): row for number, row in enumerate(choose(SPACE))}
    whole = cover(SPACE, rows)
    for id in rows:
        fewer = cover(SPACE, {other: row for other, row in rows.items() if other != id})
        assert set(fewer.missing) == {part for part, case in whole.rare.items() if case == id}


def test_named_edits_are_rare_and_distinct():
    rows = choose(SPACE)
    names = words(rows, rows, SPACE)
    assert len(set(names)) == len(rows)
    for name, row in zip(names, rows, strict=True):
        assert name == "ordinary" or set(name.split("-")) <= set(row.values())
    assert words(rows[:1], rows, SPACE, names) not in names


def test_a_row_is_completed_with_its_prerequisites():
    assert SPACE.complete({"lock": "key"}) == {
        "colour": "red", "size": "small", "stuff": "paper", "kind": "box", "lid": "flat", "lock": "key",
    }  # fmt: skip
    assert SPACE.complete({"lock": "key", "kind": "bag"}) is None


def test_a_factor_with_one_value_is_refused():
    with pytest.raises(ValueError, match="expected two values or more"):
        factor("colour", "one")
