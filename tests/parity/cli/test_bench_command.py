"""``parity bench``: a user's pair from end to end, and bad input."""

import json
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"
SAME = ("temp bytes", "peak host memory")


@pytest.mark.slow
def test_a_users_pair_is_measured_on_both_sides(shell, tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    asked = ("bench", "mlp/forward", "--pair", "foreign_mlp:PAIR", "--rounds", "2", "--json", "bench.json")
    ended = shell(*asked, cwd=tmp_path, COLUMNS="80")
    assert (ended.code, ended.err) == (0, "")
    (found,) = json.loads((tmp_path / "bench.json").read_text())["comparisons"]
    assert (found["id"], found["name"], found["not_measured"]) == ("mlp/forward@single", "NNX over Linen", {})
    words = "init, trace, lower, compile, first step, steady step, dispatch, temp bytes, cold trace, peak host memory"
    assert set(words.split(", ")) <= set(found["quantities"])
    for name, row in found["quantities"].items():
        assert row["under"] > 0 and row["over"] > 0, name
        assert all(min(pair) > 0 for pair in row["rounds"]), name
    assert all(0.8 < found["quantities"][name]["ratio"] < 1.25 for name in SAME)
    table = [line for line in ended.out.splitlines() if line.startswith(tuple(found["quantities"]))]
    assert len(table) == len(found["quantities"]) and max(map(len, table)) <= 80
    assert "NNX over Linen: mlp/forward@single on cpu" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "aot:v5p:2x2x1"), "--backend aot:v5p:2x2x1: it runs nothing"),
        (("lama2",), "selector 'lama2': matches none"),
        (("--harness", "llama2-scan/forward"), "--harness: got no [tool.parity.bench.harness]"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(command, monkeypatch, tmp_path, arguments, message):
    monkeypatch.setenv("XLA_FLAGS", "")  # the command adds to it
    ended = command("bench", *arguments, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.count("\n") == 1
