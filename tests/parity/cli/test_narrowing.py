"""``--fail-fast``, tracebacks in the report, and a full disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from toys import DENSE, write_project

PAIRS = """
class Changed(Nnx):
    def __call__(self, x):
        return {nnx}

PAIR = pair("toy", nnx=Changed, programs=("forward", "grad"))
"""
SOUND, WRONG, RAISES = "jnp.tanh(self.dense(x))", "jnp.sin(self.dense(x))", "self.dense(x[:, :3])"


@pytest.fixture
def runs(command, tmp_path, monkeypatch):
    """``runs(nnx, options...)`` runs ``parity run`` on a pair, in a separate project with a separate cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(nnx, *options):
        write_project(tmp_path, "toy_twins", PAIRS.format(nnx=nnx), "PAIR")
        return command("run", *options)

    return run


@pytest.mark.slow
def test_fail_fast_ends_with_the_first_failure_and_a_note(runs, tmp_path):
    ended = runs(WRONG, "--fail-fast", "--json", "report.json")
    assert ended.code == 1
    assert "PARTIAL: 1 of 2 cases finished before --fail-fast ended the run" in ended.out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["partial"] == {"planned": 2, "finished": 1, "why": "--fail-fast ended the run"}
    assert [case["id"] for case in report["cases"]] == ["toy/forward@single"]


def test_fail_fast_of_a_run_that_passes_changes_nothing(runs):
    ended = runs(SOUND, "--fail-fast")
    assert ended.code == 0 and "2 passed" in ended.out and "PARTIAL" not in ended.out


@pytest.mark.slow
def test_the_report_has_the_traceback_of_an_error(runs, tmp_path):
    ended = runs(RAISES, "toy/forward", "--json", "report.json")
    assert ended.code == 1 and "Traceback" not in ended.out
    (finding,) = json.loads((tmp_path / "report.json").read_text())["cases"][0]["channels"]["program"][
        "findings"
    ]
    assert finding["traceback"].startswith("Traceback") and "toy_twins.py" in finding["traceback"]
    line = (DENSE + PAIRS.format(nnx=RAISES)).partition(RAISES)[0].count("\n") + 1
    assert finding["where"] == "nnx toy, trace"
    assert f"toy_twins.py:{line} in __call__" in finding["next_step"]


@pytest.mark.long
def test_a_full_disk_is_a_sentence(shell, tmp_path):
    for arguments in (("list",), ("run", "--pair", "toy_twins:PAIR", "toy/forward")):
        (tmp_path / "toy_twins.py").write_text(DENSE + PAIRS.format(nnx=SOUND))
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "parity", *arguments],
                cwd=tmp_path,
                env=shell.environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)
        assert ended.stderr.startswith("parity: No space left on device: the output is incomplete")
