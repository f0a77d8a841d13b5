"""The search checks commits in a separate worktree: few evaluations, no leftovers."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.bisect.axis import Signature, Status
from parity.bisect.commit import search_commits
from parity.bisect.history import Check, result_of

REPO = Path(__file__).parents[3]
COMMITS, CULPRIT, RED, BROKEN = 64, 41, (20, 44), (32, 36, 50)
UNTOLD = ("objects", "logs", "packed-refs")
"""Bookkeeping files of git."""
CHECK = """import json, pathlib, sys
asked = pathlib.Path(sys.argv[2])
asked.open("a").write(pathlib.Path("number.txt").read_text())
state = pathlib.Path("state.txt").read_text().split()
if "broken" in state:
    raise SystemExit("does not compile")
flips = "flaky" in state and asked.read_text().count(pathlib.Path("number.txt").read_text()) % 2 == 0
leaves = ["loss"] * ("bad" in state and not flips) + ["weight"] * ("red" in state)
finding = [{"where": f"{leaf}[0, 3]", "reference": "", "candidate": ""} for leaf in leaves[:1]]
channels = {"values": {"verdict": "failed" if leaves else "bitwise", "detail": "", "findings": finding}}
pathlib.Path(sys.argv[1]).write_text(json.dumps({"cases": [{"id": "a/b@c", "channels": channels}]}))
"""


def git(where, *words):
    return subprocess.run(["git", *words], cwd=where, check=True, capture_output=True, text=True).stdout


def state(number, flaky, broken):
    words = ["bad"] * (number >= CULPRIT) + ["red"] * (number in RED) + ["broken"] * (number in broken)
    return " ".join([*words, *(["flaky"] if flaky and number >= CULPRIT else []), "."])


def history(folder, flaky=False, broken=BROKEN):
    """Makes a repository with `COMMITS` commits, and a working tree with uncommitted changes."""
    git(folder, "init", "-q", "-b", "main")
    stream = []
    for number in range(COMMITS):
        stream.append(
            f"commit refs/heads/main\nmark :{number + 1}\ncommitter A <a@b.c> {1_700_000_000 + number} +0000\n"
        )
        stream.append(f"data {len(str(number))}\n{number}\n")
        for name, text in (("number.txt", f"{number}\n"), ("state.txt", state(number, flaky, broken))):
            stream.append(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n")
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=folder, input="".join(stream), text=True, check=True
    )
    git(folder, "checkout", "-q", "-f", "main")
    (folder / "number.txt").write_text("at work\n")
    (folder / "own.txt").write_text("not tracked\n")
    return folder


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    return history(folder)


def search(repository):
    script, asked = repository.parent / "check.py", repository.parent / "asked.txt"
    script.write_text(CHECK)
    words = (sys.executable, "-I", str(script), "{report}", str(asked))
    check = Check(words=words, case="a/b@c")
    ends = {"good": f"main~{COMMITS - 1}", "bad": "main"}
    return functools.partial(search_commits, check, repository, **ends)


def traces(repository):
    """Returns everything that a search could change in a repository and its working tree."""
    files = {path.name: path.read_text() for path in repository.glob("*.txt")}
    inside = sorted(path.name for path in (repository / ".git").iterdir() if path.name not in UNTOLD)
    return files, git(repository, "status", "--porcelain"), git(repository, "for-each-ref"), inside


def number_of(repository, commit):
    return int(git(repository, "show", f"{commit}:number.txt"))


@pytest.mark.long
def test_the_culprit_is_found_among_unrelated_reds_and_commits_that_do_not_compile(repository):
    before = traces(repository)
    found = search(repository)()
    facts = found.axes[0].facts
    assert [number_of(repository, each) for each in facts["first"]] == [CULPRIT] and not found.ambiguous
    assert found.signature == Signature(channel="values", leaf="loss", kind="failed")
    assert facts["tested"] <= 8
    said = {text for name, text in facts["log"] if number_of(repository, name) in BROKEN}
    assert said <= {"cannot be tested: does not compile"}
    assert traces(repository) == before


@pytest.mark.long
def test_if_the_commit_before_cannot_be_tested_both_are_named(tmp_path):
    (tmp_path / "broken").mkdir()
    repository = history(tmp_path / "broken", broken=(CULPRIT - 1,))
    found = search(repository)()
    assert "is one of" in found.sentence and not found.ambiguous
    first = found.axes[0].facts["first"]
    assert sorted(number_of(repository, each) for each in first) == [CULPRIT - 1, CULPRIT]


@pytest.mark.long
@pytest.mark.parametrize("branch", ["left", "right"])
def test_the_culprit_is_found_on_either_of_two_merged_branches(tmp_path, branch):
    folder = tmp_path / "merged"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name, value in (("user.name", "A"), ("user.email", "a@b.c")):
        git(folder, "config", name, value)

    def commit(name, text):
        (folder / name).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"{name} {text}")

    commit("number.txt", "0\n")
    commit("state.txt", ".\n")
    git(folder, "tag", "good")
    for each in ("left", "right"):
        git(folder, "checkout", "-q", "-b", each, "good")
        for number in range(5):
            is_culprit = (each, number) == (branch, 3)
            commit(*(("state.txt", "bad\n") if is_culprit else (f"{each}.txt", f"{number}\n")))
    culprit = git(folder, "rev-parse", f"{branch}~1").strip()
    git(folder, "merge", "-q", "--no-edit", "left")
    found = search(folder)(good="good", bad="HEAD")
    assert found.axes[0].facts["first"] == [culprit] and not found.ambiguous


@pytest.mark.long
def test_a_check_that_changes_its_mind_is_ambiguous_and_names_no_culprit(tmp_path):
    (tmp_path / "flaky").mkdir()
    found = search(history(tmp_path / "flaky", flaky=True))()
    assert found.ambiguous and not found.axes[0].found


def test_wrong_good_and_bad_ends_are_refused(repository):
    whole = search(repository)
    for changes, words in (
        ({"good": "main~3"}, "expected one that passes"),
        ({"bad": f"main~{COMMITS - 3}"}, "expected one that fails"),
        ({"good": "main", "bad": "main~5"}, "ancestor"),
        ({"good": "nothing"}, "expected a commit"),
    ):
        with pytest.raises(ValueError, match=words):
            whole(**changes)


def test_a_report_is_held_to_the_signature():
    signature = Signature(channel="values", leaf="loss", kind="failed")

    def report(**channels):
        records = {
            name: {
                "verdict": verdict,
                "detail": "",
                "findings": [{"where": where, "reference": "", "candidate": ""}],
            }
            for name, (verdict, where) in channels.items()
        }
        return {"cases": [{"id": "a", "channels": records}]}

    for channels, status in (
        ({"values": ("failed", "loss[3]")}, Status.FAILS),
        ({"values": ("failed", "weight")}, Status.OTHER),
        ({"values": ("error", "loss")}, Status.OTHER),
        ({"values": ("bitwise", ""), "state": ("failed", "loss")}, Status.PASSES),
        ({"state": ("failed", "loss")}, Status.OTHER),
    ):
        assert result_of(json.loads(json.dumps(report(**channels))), "a", signature).status is status, (
            channels
        )
    assert str(result_of({"cases": []}, "a", signature)) == "cannot be tested: its report has no case a"


CHANGES = (
    ("README.md", "twins\n"),
    ("twins.py", "# The same in Linen and NNX.\n"),
    ("twins.py", None),
    ("notes.txt", "nothing\n"),
)


@pytest.mark.long
def test_the_real_check_finds_the_commit_that_changed_a_twin(command, tmp_path):
    """A separate project, whose commits are checked by ``parity run`` as a user's are."""
    text = (REPO / "docs" / "examples" / "foreign_mlp.py").read_text()
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name, value in (("user.name", "A"), ("user.email", "a@b.c")):
        git(folder, "config", name, value)
    (folder / "twins.py").write_text(text)
    (folder / "pyproject.toml").write_text('[tool.parity]\npairs = ["twins:PAIR"]\n')
    for number, (name, added) in enumerate([("", ""), *CHANGES]):
        if name:
            before = (folder / name).read_text() if (folder / name).exists() else ""
            right = before.replace("self.up(x)))", "self.up(x))) * 1.01")
            (folder / name).write_text(right if added is None else added + before)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"change {number}")
    before = traces(folder)
    words = ("--search", "commit", "--good", f"main~{len(CHANGES)}")
    ended = command("bisect", "mlp/forward@single", *words, cwd=folder)
    culprit = git(folder, "log", "--format=%H", "--grep", "change 3").strip()
    covered = f"values failed at outputs: the first commit that fails is {culprit[:12]}"
    assert ended.code == 1 and covered in ended.out, ended.out + ended.err
    assert traces(folder) == before
