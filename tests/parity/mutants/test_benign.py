"""Benign edits of a small user project: on executed lines, deterministic for a seed, and without an alarm."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from campaigns.edits import benign as made
from campaigns.edits.__main__ import as_toml
from campaigns.edits.armed import lines_of_cases, recorded, sources_of
from campaigns.edits.benign import benign_mutants, read_fields

from parity.compare.backends.workers import Pool, WorkerError
from parity.mutants.mutant import MutantError, import_root, plant
from parity.mutants.processes import RUN

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"
FIELDS = '[[benign]]\nfiles = ["twins/*.py"]\ncases = ["mlp/forward@single"]\n'
NEVER = "\n\ndef never(x):\n    y = 2 * x\n    return y\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's project: a package with a pair, a function in it that no case runs, and a mutant."""
    root = tmp_path_factory.mktemp("project")
    for name, text in {
        "twins/__init__.py": "",
        "twins/pair.py": EXAMPLE.read_text() + NEVER,
        "pyproject.toml": '[tool.parity]\npairs = ["twins.pair:PAIR"]\n',
        "mutants/all.toml": FIELDS + '[[mutant]]\nid = "one"\ncase = "mlp/forward@single"\n'
        '[[mutant.edits]]\nfile = "twins/pair.py"\nold = "gelu(self.up"\nnew = "silu(self.up"\n',
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def pool():
    found = Pool(1, seconds=60.0)
    yield found
    found.close()


@pytest.mark.long
def test_none_raises_an_alarm(shell, project, pool, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    edits = benign_mutants(read_fields(project / "mutants"), project, sources_of(project), 6, 3, pool)
    assert len({one.id.split("/")[1] for one in edits}) == 6, "one of each rule in turn"
    (tmp_path / "edits").mkdir()
    (tmp_path / "edits" / "benign.toml").write_text(as_toml(edits))
    record = tmp_path / "kills.json"
    words = ("mutants", str(tmp_path / "edits"), "--json", str(record))
    ended = shell(*words, cwd=project)
    assert ended.code == 0, ended.out
    first = {row["id"]: row for row in json.loads(record.read_text())["mutants"]}
    assert len(first) == 6 and {row["status"] for row in first.values()} == {"passed"}
    assert {row["why"] for row in first.values()} == {"program proved"}
    assert "0 of 6 benign edits raise an alarm" in ended.out


@pytest.mark.long
def test_lines_are_those_of_functions_that_a_case_comes_by(project, pool, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = (project, "digest", ("mlp/forward@single",), (), (project,))
    found = lines_of_cases(*asked, pool)
    lines = (project / "twins" / "pair.py").read_text().splitlines()
    ran = [lines[number - 1].strip() for number in sorted(found["mlp/forward@single"]["twins/pair.py"])]
    assert "return self.down(jax.nn.gelu(self.up(x)))" in ran
    assert "y = 2 * x" not in ran and "def inputs(seed):" not in ran
    assert lines_of_cases(*asked, None) == found, "known, yet run again"


def test_a_record_starts_from_scratch(tmp_path):
    (tmp_path / "it.py").write_text(
        "def f(x):\n    if x:\n        return 1\n    return 2\n\n\nclass A:\n    y = 1\n"
    )
    names = {}
    with recorded(tmp_path) as begin:
        before = begin()
        exec(compile((tmp_path / "it.py").read_text(), str(tmp_path / "it.py"), "exec"), names)
        names["f"](True)
        after = begin()
        names["f"](False)
    assert (before, after) == ({"it.py": {2, 3}}, {"it.py": {2, 4}})


@pytest.fixture
def places(project, monkeypatch):
    """``places(lines)`` makes benign edits, as if the case ran these lines."""

    def make(lines, count=40, seed=0):
        ran = {"mlp/forward@single": {"twins/pair.py": frozenset(lines)}}
        monkeypatch.setattr(made, "lines_of_cases", lambda *asked: ran)
        return benign_mutants(read_fields(project / "mutants"), project, "digest", count, seed, None)

    return make


def test_edits_are_on_executed_lines_and_fit(project, places, tmp_path):
    text = (project / "twins" / "pair.py").read_text()
    last = text.count("\n")
    found = places([last - 1, last])
    assert found and places([]) == []
    (tmp_path / "twins").mkdir()
    for one in found:
        assert one.benign and one.case == "mlp/forward@single"
        (tmp_path / "twins" / "pair.py").write_text(text)
        plant(one, tmp_path)
        after = (tmp_path / "twins" / "pair.py").read_text()
        assert after != text and compile(after, "pair.py", "exec")
        old = one.edits[0].old
        assert "never" in old or "y" in old or old.startswith("\nimport"), (
            "what an import runs, every case runs"
        )


@pytest.mark.slow
def test_a_seed_chooses_and_a_count_ends(places):
    every = range(1, 200)
    one, again, other = places(every, 20), places(every, 20), places(every, 20, seed=1)
    assert one == again and one != other
    assert len(one) == len({mutant.id for mutant in one}) == 20
    assert len(places(every, 10_000)) == len({mutant.id for mutant in places(every, 10_000)}) < 10_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no [[benign]] in any *.toml there"),
        ("[[benign", "cannot be read"),
        ('[[benign]]\ncases = ["a"]\n', "number 1: got no files, expected files, cases, pairs"),
        ('[[benign]]\nfiles = []\ncases = ["a"]\n', "expected files, and cases or pairs"),
        ('[[benign]]\nfiles = ["a"]\n', "expected files, and cases or pairs"),
        (FIELDS + "colour = 1\n", "number 1: got colour, expected one of files, "),
    ],
)
def test_fields_that_cannot_be_used_give_the_reason(tmp_path, text, words):
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(ValueError) as raised:
        read_fields(tmp_path)
    assert words in str(raised.value)


def test_a_field_without_files_is_an_error(project):
    field = made.Field(files=("nothing/*.py",), cases=("mlp",))
    with pytest.raises(MutantError, match=r"nothing/\*.py match none"):
        benign_mutants([field], project, "", 1, 0, None)


def test_a_file_is_imported_from_around_its_packages(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/__init__.py", "a/b/__init__.py"):
        (tmp_path / name).write_text("")
    assert import_root(tmp_path, "a/b/c.py") == Path()
    assert import_root(tmp_path, "docs/c.py") == Path("docs")


# --- processes ---


@pytest.fixture
def said(tmp_path, pool):
    """``said(text)`` returns the exit code and output of a process that runs a module with that text."""

    def run(text, pool=pool):
        folder = tmp_path / "edited"
        folder.mkdir(exist_ok=True)
        (folder / "a_module.py").write_text(f"{text}\n")
        return pool.submit(RUN, ["a_module", "a word"], tmp_path, [folder]).result()

    return run


@pytest.mark.long
def test_each_call_starts_a_new_process(said, tmp_path):
    code, printed = said("import os, sys; print(sys.argv[1:], os.getcwd())")
    assert (code, printed) == (0, f"['a word'] {tmp_path}\n")
    code, printed = said("import sys; print('no', file=sys.stderr); sys.exit(3)")
    assert (code, printed) == (3, "no\n"), "an edited module was not read again"


@pytest.mark.long
def test_devices_are_chosen_before_jax_is_imported(said):
    assert said("import jax; print(len(jax.devices()))") == (0, "8\n")


@pytest.mark.long
def test_crashes_are_distinguished_from_differences(said):
    code, printed = said("raise KeyError('why')")
    assert code == 1 and "KeyError: 'why'" in printed
    code, _ = said("import os; os.abort()")
    assert code == -signal.SIGABRT
    assert said("print('on')") == (0, "on\n")


@pytest.mark.long
def test_a_case_that_takes_too_long_is_ended_and_the_next_starts(said, tmp_path):
    pool = Pool(1, seconds=15.0)
    assert said("print('on')", pool=pool) == (0, "on\n")
    file = tmp_path / "id"
    with pytest.raises(WorkerError, match="exceeded 15 s"):
        said(f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)", pool=pool)
    process = int(file.read_text())
    begun = time.monotonic()
    while Path(f"/proc/{process}").exists() and time.monotonic() < begun + 20:
        time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert said("print('on')", pool=pool) == (0, "on\n")
    pool.close()
