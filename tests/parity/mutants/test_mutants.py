"""Mutants of a small user project: killed, survived, benign, broken; by a case and by a test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.channels import ALL
from parity.mutants.matrix import as_markdown, catches, score
from parity.mutants.mutant import MutantError, choose, plant, read_mutants
from parity.mutants.trial import Outcome, Status

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"
HEAD = '[[mutant]]\nid = "one"\n'
EDIT = '[[mutant.edits]]\nfile = "twins/pair.py"\nold = "24"\nnew = "25"\n'


def mutant(id, old, new, **fields):
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    edit = f'[[mutant.edits]]\nfile = "twins/pair.py"\nold = {json.dumps(old)}\nnew = {json.dumps(new)}\n'
    return "\n".join(["[[mutant]]", f'id = "{id}"', *lines, edit])


GELU = "return self.down(jax.nn.gelu(self.up(x)))"
CASE = "mlp/forward@single"
MUTANTS = {
    "killed": mutant(
        "killed",
        GELU,
        GELU.replace("gelu", "silu"),
        case=CASE,
        channels=["values"],
        words=["outputs", "pair.py:"],
    ),
    "misnamed": mutant(
        "misnamed",
        GELU,
        GELU.replace("gelu", "relu"),
        case=CASE,
        channels=["values", "rng"],
        words=["no such word"],
    ),
    "survived": mutant("survived", "import numpy as np", "import numpy as np  # a comment", case=CASE),
    "harmless": mutant("harmless", "x)))\n\n\ndef inputs", "x)))\n\n\n\ndef inputs", case=CASE, benign=True),
    "alarm": mutant("alarm", GELU, f"x = 2 * x\n        {GELU}", case=CASE, benign=True),
    "tested": mutant("tested", "size=(8, size)", "size=(9, size)", oracle="test_pair.py"),
    "broken": mutant("broken", "no such text", "", case=CASE),
    "lost": mutant("lost", "mlp", "mlp", case="nothing/forward"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's project: a package with a pair, its settings, a test, and mutants."""
    root = tmp_path_factory.mktemp("project")
    (root / "twins").mkdir()
    (root / "twins" / "__init__.py").write_text("")
    (root / "twins" / "pair.py").write_text(EXAMPLE.read_text())
    (root / "pyproject.toml").write_text('[tool.parity]\npairs = ["twins.pair:PAIR"]\n')
    (root / "test_pair.py").write_text(
        "from twins import pair\n\ndef test_rows():\n    assert len(pair.inputs(0)['x']) == 8\n"
    )
    (root / "mutants").mkdir()
    names = ("killed", "misnamed", "survived", "harmless", "alarm", "tested", "broken")
    (root / "mutants" / "all.toml").write_text("\n".join(MUTANTS[name] for name in names))
    return root


@pytest.mark.long
def test_each_dtype_is_kept(shell, project, tmp_path):
    files = ("--json", str(tmp_path / "kills.json"), "--markdown", str(tmp_path / "kills.md"))
    ended = shell("mutants", "mutants", *files, cwd=project)
    record = json.loads((tmp_path / "kills.json").read_text())
    found = {row["id"]: row for row in record["mutants"]}
    assert {id: row["status"] for id, row in found.items()} == {
        "killed": "killed",
        "misnamed": "killed",
        "survived": "survived",
        "harmless": "passed",
        "alarm": "alarm",
        "tested": "killed",
        "broken": "broken",
    }
    assert ended.code == 1
    assert (found["killed"]["missed"], found["killed"]["unnamed"]) == ([], [])
    assert (found["misnamed"]["missed"], found["misnamed"]["unnamed"]) == (["rng"], ["no such word"])
    assert found["tested"]["by"] == ["oracle"] and "0 times" in found["broken"]["why"]
    assert record["score"]["score"] == 3 / 4 and record["score"]["alarm"] == 1
    assert (
        "3 of 4 bugs killed (75.0%)" in ended.out
        and "1 of 2 benign edits raise an alarm; 1 could not be tried" in ended.out
    )
    page = (tmp_path / "kills.md").read_text()
    assert page.index("| survived |") < page.index("| killed |")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no [[mutant]] in any *.toml"),
        ("[[mutant", "cannot be read"),
        (HEAD + 'case = "a"\ncolour = "red"\n' + EDIT, "number 1: got colour, expected one of id, edits,"),
        (HEAD + 'case = "a"\nchanels = ["rng"]\n' + EDIT, "did you mean channels?"),
        (HEAD + 'case = "a"\nbenign = 1\n' + EDIT, "number 1.benign: got 1, expected"),
        (HEAD + 'case = "a"\n', "number 1: got no edits"),
        (HEAD + 'case = "a"\nedits = []\n', "'one': expected edits, and either a case or an oracle"),
        ('[[mutant]]\ncase = "a"\n' + EDIT, "number 1: got no id"),
        (HEAD + 'case = "a"\noracle = "b"\n' + EDIT, "either a case or an oracle"),
        (
            HEAD + 'case = "a"\nchannels = ["valeus"]\n' + EDIT,
            "'one': channels: got valeus, expected one of ",
        ),
        (HEAD + 'case = "a"\n[[mutant.edits]]\nfile = "f"\n', "number 1.edits, number 1: got no old"),
        ((HEAD + 'case = "a"\n' + EDIT) * 2, "ids ['one'] are there twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_the_reason(tmp_path, text, words):
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(ValueError) as raised:
        read_mutants(tmp_path)
    assert words in str(raised.value) and str(tmp_path) in str(raised.value)


def read(tmp_path, *names):
    (tmp_path / "some.toml").write_text("\n".join(MUTANTS[name] for name in names))
    return read_mutants(tmp_path)


def test_a_selector_takes_ids_cases_and_oracles(tmp_path):
    every = read(tmp_path, "killed", "survived", "tested")
    assert [one.id for one in choose(every, ["kil", "test_pair.py"])] == ["killed", "tested"]
    assert [one.id for one in choose(every, ["*forward*"])] == ["killed", "survived"]
    with pytest.raises(MutantError, match="'nothing': matches no mutant"):
        choose(every, ["killed", "nothing"])


def test_a_patch_takes_each_text_once(tmp_path):
    (tmp_path / "twins").mkdir()
    (one,) = read(tmp_path, "lost")
    (tmp_path / "twins" / "pair.py").write_text("mlp mlp")
    with pytest.raises(MutantError, match="2 times 'mlp', expected once"):
        plant(one, tmp_path)


def test_every_bug_of_ours_can_be_planted(tmp_path):
    """CI tries only part of them with each commit, so it would report an edited line many commits later."""
    root = Path(__file__).parents[3]
    for one in read_mutants(root / "tests" / "mutants"):
        folder = tmp_path / one.id
        for edit in one.edits:
            if (root / edit.file).exists():
                (folder / edit.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / edit.file).write_text((root / edit.file).read_text())
        plant(one, folder)
    ruff = [Path(sys.executable).with_name("ruff"), "check", "--isolated", "--select", "F821", tmp_path]
    ended = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout  # a name that is gone would be an error, not the bug


def outcome(id, status, *by):
    return Outcome(id=id, status=status, by=by)


def test_bugs_that_only_one_channel_catches():
    outcomes = [
        outcome("a", Status.KILLED, "program", "values"),
        outcome("b", Status.KILLED, "values", "state"),
        outcome("c", Status.KILLED, "program"),
        outcome("d", Status.SURVIVED),
        outcome("e", Status.ALARM, "memory"),
    ]
    found = catches(outcomes)
    assert (found["values"], found["state"], found["program"], found["memory"]) == (
        (2, 1),
        (1, 0),
        (2, 1),
        (0, 0),
    )
    assert set(found) == {*ALL, "oracle"}
    assert score(outcomes)["score"] == 3 / 4


def test_the_page_has_a_row_for_each(tmp_path):
    every = read(tmp_path, "killed", "tested")
    page = as_markdown(
        [outcome("killed", Status.SURVIVED), outcome("tested", Status.KILLED, "oracle")], every
    )
    assert "| killed |  | `twins/pair.py` | `mlp/forward@single` | survived |  |" in page
    assert "| tested |  | `twins/pair.py` | `test_pair.py` | killed | oracle |" in page
