"""Interleaved rounds, ratios with their spread, and bounds."""

import io

import numpy as np
import pytest
from rich.console import Console

from parity.compare.timing.measure import BOUNDS, exceeds, quantity, subjects
from parity.compare.timing.rounds import Paired, interleave
from parity.report.bench import amount, bench_record, print_bench, print_measured


def pairs(*rows):
    return Paired(np.array(rows, float))


def measured(bounds=BOUNDS, **found):
    named = {name.replace("_", " "): pair for name, pair in found.items()}
    rows = {name: quantity(name, pair, bounds.get(name)) for name, pair in named.items()}
    return {
        "id": "net/grad@single",
        "name": "NNX over Linen",
        "sides": ["linen net", "nnx net"],
        "backend": "cpu",
        "mesh": "single",
        "same_program": False,
        "quantities": rows,
        "not_measured": {},
        "above": [name for name, row in rows.items() if exceeds(row)],
    }


def printed(show, *what):
    screen = Console(width=100, file=io.StringIO())
    show(screen, *what)
    return screen.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_sides_alternate_in_being_first_and_all_quantities_keep_their_side():
    order = []

    def side(index):
        def once():
            order.append(index)
            return {"a": index + 1.0, "b": 10.0 * (index + 1)}

        return once

    found = interleave((side(0), side(1)), rounds=3)
    assert order == [0, 1] + [0, 1, 1, 0, 0, 1]
    assert found["a"].values.tolist() == [[1, 2]] * 3 and found["b"].values.tolist() == [[10, 20]] * 3
    order.clear()
    interleave((side(0), side(1)), rounds=2, warm=False)
    assert order == [0, 1, 1, 0]


def test_ratios_are_of_a_round_and_their_median_is_not_that_of_the_medians():
    pair = pairs((1, 2), (10, 10), (4, 2))
    assert pair.ratios.tolist() == [2, 1, 0.5]
    assert (pair.middle, pair.medians) == (1, (4, 2))
    assert (pair.low, pair.high) == (0.75, 1.5)
    assert pairs((0, 0), (0, 3)).ratios.tolist() == [1, np.inf]


def test_above_means_in_three_rounds_of_four():
    noisy = pairs((1, 1), (1, 1), (1, 9), (1, 9))
    slow = pairs(*[(1, 1.2)] * 4, (1, 0.2))
    found = measured(trace=noisy, lower=slow, temp_bytes=pairs((100, 101)), init=pairs((1, 5)))
    assert found["above"] == ["lower", "temp bytes"]
    assert [found["quantities"][name]["ratio"] for name in found["above"]] == [1.2, 1.01]
    assert measured(bounds={}, lower=slow)["above"] == []


def test_a_table_fits_80_columns_and_names_excesses_and_next_steps():
    slow = measured(
        trace=pairs((0.01, 0.02), (0.01, 0.02)),
        lower=pairs((5e-5, 4e-5), (5e-5, 4e-5)),
        temp_bytes=pairs((2**31, 2**31)),
        **{"cold_trace": pairs((123.4e-6, 12_345.6e-6), (123.4e-6, 12_345.6e-6))},
    )
    text = printed(print_measured, slow)
    table = [line for line in text.splitlines() if "above" not in line]
    assert max(map(len, table)) <= 80
    assert "trace 10 ms 20 ms 2.00 2.00 to 2.00 1.10" in [" ".join(line.split()) for line in table]
    assert "above its bound: trace 2.00, at most 1.10; `parity inspect net/grad@single`" in text
    same = measured(compile=pairs((1, 2)), lower=pairs((1, 2))) | {"same_program": True}
    compiled, lowered = [line for line in printed(print_measured, same).splitlines() if "above" in line]
    assert "compile 2.00" in compiled and "proved to be the same" in compiled and "proved" not in lowered
    assert "above their bounds: trace of net/grad@single" in printed(print_bench, [slow])
    assert "all within their bounds" in printed(print_bench, [measured(trace=pairs((1, 1)))])
    assert printed(print_bench, [measured(bounds={}, trace=pairs((1, 9)))]) == ""


def test_the_record_holds_every_round():
    record = bench_record("comparisons", [measured(temp_bytes=pairs((3, 4)))])
    row = record["comparisons"][0]["quantities"]["temp bytes"]
    assert (row["unit"], row["ratio"], row["bound"], row["rounds"]) == ("bytes", 4 / 3, 1.0, [[3.0, 4.0]])
    assert record["comparisons"][0]["above"] == ["temp bytes"]


@pytest.mark.parametrize(
    ("unit", "value", "words"),
    [
        ("seconds", 0.01234, "12.3 ms"),
        ("seconds", 1234.5, "1,234 s"),
        ("seconds", 6.4e-05, "64 us"),
        ("bytes", 3 * 2**20, "3 MiB"),
        ("bytes", 512.0, "0.5 KiB"),
    ],
)
def test_amounts_as_text(unit, value, words):
    assert amount(value, unit) == words


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"compares": []},
            r"\[tool.parity.bench\]: got compares, expected one of compare; did you mean compare",
        ),
        (
            {"compare": [{"name": "a"}]},
            r"\[tool.parity.bench\]: compare, number 1: got no cases, expected cases = selectors",
        ),
        ({"compare": [{"name": "a", "cases": ["x"], "swap": 1}]}, "number 1.swap: got 1, expected `?bool"),
        ({"compare": ["a"]}, "number 1: got 'a', expected a table"),
    ],
)
def test_a_table_of_another_form_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        subjects(table, [], [])
