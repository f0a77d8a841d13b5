"""An error in a table is one sentence: its place, also below keys of a mapping, the value, the expected one."""

import dataclasses
import datetime
import tomllib
from typing import Annotated, Any, Literal

import msgspec
import pytest

from parity.cases.tables import Table, read, unknown


class Part(Table, frozen=True, kw_only=True):
    cases: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, description='selectors such as ["mlp*"]')]
    mode: Literal["auto", "explicit"] = "auto"
    count: Annotated[int, msgspec.Meta(gt=0)] = 1
    share: float = 0.5
    day: str = ""
    more: dict[str, str | list[Any]] = msgspec.field(default_factory=dict)

    def __post_init__(self):
        if self.count == 7:
            raise ValueError("seven parts, expected fewer")


class Whole(Table, frozen=True, kw_only=True, rename="kebab"):
    parts: dict[str, dict[str, Part | tuple[str, ...]]] = msgspec.field(default_factory=dict)
    in_order: tuple[Part, ...] = ()
    size: Annotated[int, msgspec.Meta(gt=0, description="a number of bytes")] | None = None


@dataclasses.dataclass(kw_only=True)
class Plain:
    name: str = ""
    count: int


GOOD = {"cases": ["mlp"]}


def test_a_table_becomes_its_type():
    text = '[parts.a]\nb = ["c"]\nd = { cases = ["e"], share = 1, day = 2027-01-31 }\n[[in-order]]\ncases = ["f"]\n'
    assert read(Whole, tomllib.loads(f"size = 3\n{text}")) == Whole(
        parts={"a": {"b": ("c",), "d": Part(cases=("e",), share=1.0, day="2027-01-31")}},
        in_order=(Part(cases=("f",)),),
        size=3,
    )


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (3, "got 3, expected a table"),
        ({"siz": 3}, "got siz, expected one of parts, in-order, size; did you mean size?"),
        ({"in_order": []}, "got in_order, expected one of parts, in-order, size; did you mean in-order?"),
        ({"size": True}, "size: got True, expected a number of bytes"),
        ({"size": 0}, "size: got 0, expected a number of bytes"),
        ({"parts": []}, "parts: got [], expected a table"),
        (
            {"in-order": [GOOD, {}]},
            'in-order, number 2: got no cases, expected cases = selectors such as ["mlp*"]',
        ),
        (
            {"in-order": [GOOD, {"cases": []}]},
            'in-order, number 2.cases: got [], expected selectors such as ["mlp*"]',
        ),
        ({"parts": {"good": {"x": ["y"]}, "bad": 3}}, "parts.bad: got 3, expected a table"),
        ({"parts": {"a": {"good": ["y"], "bad": "z"}}}, "parts.a.bad: got 'z', expected a table or a list"),
        ({"parts": {"a": {"x": ["y"], "bad": [1]}}}, "parts.a.bad, number 1: got 1, expected a text"),
        (
            {"parts": {"a": {"x": GOOD}, "b": {"y": {**GOOD, "shar": 1}}}},
            "parts.b.y: got shar, expected one of cases, mode, count, share, day, more; did you mean share?",
        ),
        (
            {"parts": {"a": {"x": {**GOOD, "mode": "explicitly"}}}},
            "parts.a.x.mode: got explicitly, expected one of auto, explicit; did you mean explicit?",
        ),
        (
            {"in-order": [{**GOOD, "count": -1}]},
            "in-order, number 1.count: got -1, expected a whole number >= 1",
        ),
        ({"in-order": [{**GOOD, "count": 7}]}, "in-order, number 1: seven parts, expected fewer"),
        ({"in-order": [{**GOOD, "share": "1"}]}, "in-order, number 1.share: got '1', expected a number"),
        ({"in-order": [{**GOOD, "share": True}]}, "in-order, number 1.share: got True, expected a number"),
        (
            {"x` - at `$.y": 1, "size": 1},
            "got x` - at `$.y, expected one of parts, in-order, size",
        ),
        (
            {"parts": {"x` - at `$[0].y": {"a[3].b": 3}}},
            "parts.x` - at `$[0].y.a[3].b: got 3, expected a table or a list",
        ),
        (
            {"in-order": [{**GOOD, "more": {"a.b": "x", "c d": 2}}]},
            "in-order, number 1.more.c d: got 2, expected a text or a list",
        ),
    ],
)
def test_a_mistake_is_one_sentence(table, sentence):
    with pytest.raises(ValueError) as raised:
        read(Whole, table)
    assert str(raised.value) == sentence
    with pytest.raises(ValueError) as raised:
        read(dict[str, Whole], {"good": {}, "bad": table}, "file")
    assert str(raised.value) == f"file: bad{': ' if sentence.startswith('got') else '.'}{sentence}"


def test_each_part_of_a_fixed_list_has_its_type():
    with pytest.raises(ValueError, match="number 2: got 2, expected a text"):
        read(tuple[int, str], [1, 2])
    with pytest.raises(ValueError, match="length 2"):
        read(tuple[int, str], [1, "a", 3])


def test_a_long_value_is_cut_and_a_date_is_a_text():
    with pytest.raises(ValueError, match=r"^x: got \[\['aaaa.*, expected a table$") as raised:
        read(dict[str, str], [["a" * 999]], "x")
    assert len(str(raised.value)) < 120
    with pytest.raises(ValueError, match=r"^x: seven parts, expected fewer$"):
        read(Part, {**GOOD, "count": 7}, "x")
    assert read(list[str], [datetime.date(2027, 1, 31)]) == ["2027-01-31"]


def test_the_fields_of_a_dataclass_are_listed_as_declared():
    with pytest.raises(ValueError, match=r"^number 2: got no count, expected name, count$"):
        read(list[Plain], [{"count": 1}, {}])


def test_the_nearest_name_is_part_of_the_message():
    assert (
        unknown("valeus", ["values", "state"])
        == "got valeus, expected one of values, state; did you mean values?"
    )
    assert unknown("x", ["values", "state"]) == "got x, expected one of values, state"
