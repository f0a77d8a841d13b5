"""A reproduction folder shows the failure elsewhere and contains only files that the case needs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
RIGHT, WRONG = "self.up(x)))", "scaled(self.up(x))))"
SCALED = "def scaled(x):\n    return x * 1.01\n"


@pytest.fixture
def project(tmp_path):
    """A failing pair, a module that it needs, and one that it does not."""
    text = (REPO / "docs" / "examples" / "foreign_mlp.py").read_text()
    assert text.count(RIGHT) == 1
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "repro_pair.py").write_text("from repro_scaling import scaled\n" + text.replace(RIGHT, WRONG))
    (folder / "repro_scaling.py").write_text(SCALED)
    (folder / "repro_unused.py").write_text("raise ImportError\n")
    (folder / "pyproject.toml").write_text('[tool.parity]\npairs = ["repro_pair:PAIR"]\n')
    return folder


@pytest.mark.long
def test_it_fails_in_the_same_way_outside_the_project_and_passes_once_fixed(shell, project, tmp_path):
    made = shell(
        "bisect", "mlp/forward@single", "--search", "none", "--repro", str(tmp_path / "shown"), cwd=project
    )
    assert made.code == 1 and "values failed at outputs" in made.out
    shutil.rmtree(project)
    code = tmp_path / "shown" / "code"
    assert sorted(path.name for path in code.iterdir()) == [
        "pyproject.toml",
        "repro_pair.py",
        "repro_scaling.py",
    ]
    packages = json.loads((tmp_path / "shown" / "repro.json").read_text())["environment"]["packages"]
    assert packages["jax"].startswith("0.") and packages["flax"].startswith("0.")

    def shown():
        asked = [sys.executable, str(tmp_path / "shown" / "repro.py")]
        return subprocess.run(asked, cwd="/", env=shell.environment(), capture_output=True, text=True)

    again = shown()
    assert again.returncode == 1, again.stderr
    assert "mlp/forward@single: the same failure: values failed at outputs" in again.stdout
    (code / "repro_scaling.py").write_text(SCALED.replace("1.01", "1.0"))
    assert shown().returncode == 0
    (code / "repro_scaling.py").write_text(SCALED.replace("x * 1.01", "x.reshape(3)"))
    assert shown().returncode == 3


def test_a_folder_with_something_in_it_is_left_alone(command, project):
    (project / "kept").mkdir()
    (project / "kept" / "notes.txt").write_text("mine")
    ended = command("bisect", "mlp/forward@single", "--search", "none", "--repro", "kept", cwd=project)
    assert ended.code == 2 and "expected a new folder or an empty one" in ended.err
    assert (project / "kept" / "notes.txt").read_text() == "mine"


@pytest.mark.long
def test_a_case_that_passes_has_nothing_to_show(command, project):
    (project / "repro_scaling.py").write_text(SCALED.replace(" * 1.01", ""))
    ended = command("bisect", "mlp/forward@single", "--search", "none", "--repro", "shown", cwd=project)
    assert not (project / "shown").exists()
    assert (ended.code, ended.out) == (0, "mlp/forward@single: nothing fails: nothing to bisect\n")
