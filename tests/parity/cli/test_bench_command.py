"""``parity bench``: a user's pair from end to end, and bad input."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.compare.timing import measure
from parity.compare.timing.measure import BOUNDS, quantity
from parity.compare.timing.rounds import Paired

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"
SAME = ("temp bytes",)


PROJECT = """
[tool.parity]
pairs = ["foreign_mlp:PAIR"]

[[tool.parity.bench.compare]]
name = "new over old"
cases = ["mlp/forward"]
"""


@pytest.mark.long
def test_a_users_pair_is_measured_on_both_sides(shell, tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    ended = shell("bench", "--rounds", "2", "--json", "bench.json", cwd=tmp_path, COLUMNS="80")
    assert (ended.code, ended.err) == (0, "")
    record = json.loads((tmp_path / "bench.json").read_text())
    (found,) = record["comparisons"]
    assert (found["id"], found["name"], found["not_measured"]) == ("mlp/forward@single", "new over old", {})
    words = "init, trace, lower, compile, first step, steady step, temp bytes"
    assert set(words.split(", ")) <= set(found["quantities"])
    for name, row in found["quantities"].items():
        assert row["under"] > 0 and row["over"] > 0, name
        assert all(min(pair) > 0 for pair in row["rounds"]), name
    assert all(0.8 < found["quantities"][name]["ratio"] < 1.25 for name in SAME)
    table = [line for line in ended.out.splitlines() if line.startswith(tuple(found["quantities"]))]
    assert len(table) == len(found["quantities"]) and max(map(len, table)) <= 80
    assert "new over old: mlp/forward@single on cpu" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "aot:v5p:2x2x1"), "--backend aot:v5p:2x2x1: this backend runs no programs"),
        (("lama2",), "selector 'lama2': matches none"),
        (("--scaling", "llama2-scan/forward"), "--scaling: got SELECT too"),
        (("--scaling", "--rounds", "2"), "--scaling: got --rounds too"),
        (("--scaling", "--backend", "tpu"), "--scaling: got --backend too"),
        (("--sizes", "layers=1"), "--sizes: needs --scaling"),
        (("--scaling", "--sizes", "depth=1"), "--sizes depth=1: expected full, or layers"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(command, monkeypatch, tmp_path, arguments, message):
    monkeypatch.setenv("XLA_FLAGS", "")  # the command adds to it
    ended = command("bench", *arguments, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.count("\n") == 1


@pytest.mark.slow
def test_enforce_fails_ratios_above_their_bound(command, monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "")
    slow = Paired(np.array([[1.0, 1.5]] * 3))
    found = {
        "id": "llama2-scan/forward",
        "name": "NNX over Linen",
        "backend": "cpu",
        "same_program": False,
        "quantities": {"trace": quantity("trace", slow, BOUNDS["trace"])},
        "not_measured": {},
        "above": ["trace"],
    }
    monkeypatch.setattr(measure, "measure_each", lambda *asked: iter([found]))
    for options, code in (((), 0), (("--enforce",), 1)):
        ended = command("bench", "llama2-scan/forward", *options, cwd=tmp_path)
        assert ended.code == code and "above its bound: trace 1.50, at most 1.10" in ended.out
