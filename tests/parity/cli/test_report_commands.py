"""``report``, ``run --shard`` and ``gate``: different views of one run."""

import json
import re

import pytest
from campaigns import records
from toys import DENSE

TWINS = """
class Planted(Nnx):
    def __call__(self, x):
        return jnp.sin(self.dense(x))

PAIRS = [pair("left", programs=("forward", "grad")), pair("right", RIGHT, programs=("forward",))]
"""
SETTINGS = """
[tool.parity]
pairs = ["both_twins:PAIRS"]
[tool.parity.gate]
baselines = "accepted"
not_applicable = [{ channel = "collectives", reason = "one device" }]
[tool.parity.gate.require]
program = "proved"
values = "bitwise"
collectives = "equal"
[tool.parity.flips]
only_left = { features = { left = ["left"] } }
only_right = { features = { right = ["right/*"] } }
both = { about = "all of it", after = { pure = true }, features = { left = ["left"], right = ["right"] } }
"""
WAIVED = """
[[tool.parity.waivers]]
channel = "val*"
reason = "a planted bug"
"""


def project(folder, right="Nnx"):
    (folder / "both_twins.py").write_text(DENSE + TWINS.replace("RIGHT", right))
    (folder / "pyproject.toml").write_text(SETTINGS)
    return folder


@pytest.fixture(scope="module")
def ran(shell, tmp_path_factory):
    """A folder with a project whose right pair has a planted bug, and its report."""
    folder = project(tmp_path_factory.mktemp("ran"), right="Planted")
    ended = shell("run", "--json", "r.json", "--html", "r.html", "--junit", "r.xml", cwd=folder)
    assert ended.code == 1, ended
    assert "html: r.html" in ended.out and (folder / "r.xml").read_text().startswith("<?xml")
    return folder, ended


def flips(text):
    """Returns ``{flip: verdict}`` of the closing table of a gate."""
    return dict(re.findall(r"^(\w+) +(ready|open|blocked) +\d", text, re.MULTILINE))


@pytest.mark.long
def test_a_report_is_printed_again_as_the_run_printed_it(ran, command):
    folder, first = ran
    again = command("report", "r.json", cwd=folder)
    assert again.code == 1
    table = first.out[first.out.index("case ") :].split("report: ")[0]
    assert again.out == table


@pytest.mark.long
def test_the_result_of_a_bisect_is_in_the_record_and_on_the_page(command, tmp_path):
    folder = project(tmp_path, right="Planted")
    ended = command("run", "--bisect", "--json", "r.json", "--html", "r.html", cwd=folder)
    assert ended.code == 1
    report = json.loads((folder / "r.json").read_text())
    followed = {case["id"]: case["bisect"] for case in report["cases"] if "bisect" in case}
    assert list(followed) == ["right/forward@single"]
    op, module = followed["right/forward@single"]["axes"]
    assert op["facts"]["first"]["operations"] == ["tanh", "sin"] and module["facts"]["modules"][0][2] is None
    cause = followed["right/forward@single"]["sentence"].removeprefix("right/forward@single: ")
    assert "Planted.__call__" in cause and f"</strong> {cause}</p>" in (folder / "r.html").read_text()
    again = command("report", "r.json", "--json", "again.json", cwd=folder)
    assert again.code == 1 and json.loads((folder / "again.json").read_text()) == report
    layers = report["cases"][-1]["channels"]["values"]["tables"]["layers"]
    assert [(row["leaves"], row["differ"], row["rung"]) for row in layers] == [(1, 1, "failed")]


@pytest.mark.slow
def test_a_bisect_of_one_case_writes_the_page_of_that_case(command, tmp_path):
    folder = project(tmp_path, right="Planted")
    ended = command("bisect", "right/forward", "--search", "op", "--html", "b.html", cwd=folder)
    assert ended.code == 1 and "html: b.html" in ended.out
    stages = [line.partition(":")[0] for line in ended.err.splitlines()]
    assert stages[:4] == ["the case itself", "the case itself, again", "op", "op"], ended.err
    page = (folder / "b.html").read_text()
    assert "Followed to its cause:</strong> values failed" in page and "Planted.__call__" in page
    fine = command("bisect", "left/forward", "--search", "op", "--html", "b.html", cwd=folder)
    assert fine.code == 0 and "Followed" not in (folder / "b.html").read_text().partition("<script")[0]
    full = command("bisect", "right/forward", "--html", "missing/b.html", cwd=folder)
    assert full.code == 2 and "choose another with --html" in full.err


@pytest.mark.long
def test_a_planted_bug_holds_back_exactly_the_flips_it_touches(ran, command):
    folder, _ = ran
    ended = command("gate", "--from", "r.json", "--json", "gate.json", "--markdown", "gate.md", cwd=folder)
    assert ended.code == 1
    assert flips(ended.out) == {"only_left": "ready", "only_right": "blocked", "both": "blocked"}
    assert "right @single failed: values: right/forward@single: failed" in ended.out
    assert "right @single ambiguous: program" in ended.out
    gate = json.loads((folder / "gate.json").read_text())["gate"]
    assert [flip["verdict"] for flip in gate["flips"]] == ["ready", "blocked", "blocked"]
    assert "| only\\_left | ready |" in (folder / "gate.md").read_text()
    named = command("gate", "only_left", "--from", "r.json", cwd=folder)
    assert named.code == 0 and flips(named.out) == {"only_left": "ready"} and "ok ready" in named.out


@pytest.mark.long
def test_the_record_of_a_part_is_judged_as_far_as_it_goes_and_the_rest_is_named(ran, command):
    folder, _ = ran
    report = json.loads((folder / "r.json").read_text())
    report["cases"] = [case for case in report["cases"] if case["id"].startswith("left/")]
    (folder / "part.json").write_text(json.dumps(report))
    ended = command("gate", "only_left", "both", "--from", "part.json", cwd=folder)
    assert ended.code == 1 and flips(ended.out) == {"only_left": "ready", "both": "blocked"}
    ended = command("gate", "only_left", "both", "--from", "part.json", "--part", cwd=folder)
    assert ended.code == 0 and flips(ended.out) == {"only_left": "ready", "both": "open"}
    assert "cells are not in the record: right @single" in ended.out and "? not in the record" in ended.out
    ended = command("gate", "only_right", "--from", "part.json", "--part", cwd=folder)
    assert ended.code == 0 and flips(ended.out) == {"only_right": "open"}
    assert "part.json has no case of these flips, so nothing is judged" in ended.out + ended.err
    ended = command("gate", "only_right", "--part", cwd=folder)
    assert ended.code == 2 and "--part: only with --from" in ended.err


@pytest.mark.long
def test_the_record_of_a_part_with_a_difference_blocks(ran, command):
    folder, _ = ran
    report = json.loads((folder / "r.json").read_text())
    report["cases"] = [case for case in report["cases"] if case["id"].startswith("right/")]
    (folder / "part.json").write_text(json.dumps(report))
    ended = command("gate", "--from", "part.json", "--part", cwd=folder)
    assert ended.code == 1
    assert flips(ended.out) == {"only_left": "open", "only_right": "blocked", "both": "blocked"}
    assert "right @single failed: values: right/forward@single: failed, gate.require requires" in ended.out


def test_a_report_of_other_code_or_other_settings_is_not_judged(ran, command, monkeypatch):
    folder, _ = ran
    report = json.loads((folder / "r.json").read_text())
    report["environment"]["commit"] = "a" * 40
    (folder / "other.json").write_text(json.dumps(report))
    monkeypatch.setattr("parity.compare.backends.environment.git_commit", lambda: "b" * 40 + "+")
    ended = command("gate", "only_left", "--from", "other.json", cwd=folder)
    assert ended.code == 2 and f"a report of commit {'a' * 40}, but this is {'b' * 40}+" in ended.err
    report["environment"] |= {"commit": "b" * 40, "settings": {"embed": "8"}}
    (folder / "other.json").write_text(json.dumps(report))
    ended = command("gate", "only_left", "--from", "other.json", cwd=folder)
    assert (
        ended.code == 2
        and "this report was made with --set embed=8; run the cases without --set" in ended.err
    )
    del report["environment"]["settings"]
    (folder / "other.json").write_text(json.dumps({**report, "waivers": [{"reason": "of yesterday"}]}))
    ended = command("gate", "only_left", "--from", "other.json", cwd=folder)
    assert ended.code == 2 and "other waivers than those of today; run the cases again" in ended.err


@pytest.mark.slow
def test_the_gate_runs_the_cases_of_a_flip_and_keeps_baselines(command, tmp_path):
    folder = project(tmp_path)
    ended = command("gate", "only_left", "--accept", "--json", "g.json", cwd=folder)
    assert ended.code == 0, ended
    assert "baselines: 2 cases accepted" in ended.out and len(list((folder / "accepted").iterdir())) == 2
    report = json.loads((folder / "g.json").read_text())
    assert [case["id"] for case in report["cases"]] == ["left/forward@single", "left/grad@single"]
    report["cases"][1]["channels"]["values"]["verdict"] = "bitwise"
    (folder / "lower.json").write_text(json.dumps(report))
    lower = command("gate", "only_left", "--from", "lower.json", "--since", "g.json", cwd=folder)
    assert lower.code == 1 and "values fell from proved to bitwise" in lower.out
    assert "left/grad@single values: proved -> bitwise, worse" in lower.out


@pytest.mark.long
def test_parts_of_a_run_merge_to_the_run(ran, command):
    folder, _ = ran
    command("run", "left", "--json", "run.json", cwd=folder)
    for number in (1, 2):
        command("run", "left", "--shard", f"{number}/2", "--json", f"{number}.json", cwd=folder)
    merged = command("report", "2.json", "1.json", "--json", "all.json", cwd=folder)
    assert merged.code == 0
    whole, run = (json.loads((folder / name).read_text()) for name in ("all.json", "run.json"))

    def timeless(report):
        def channel(one):
            return {**one, "measures": {name: 0 for name in one.get("measures", {})}}

        cases = [
            {**case, "seconds": 0, "channels": {name: channel(one) for name, one in case["channels"].items()}}
            for case in report["cases"]
        ]
        return {**report, "seconds": 0, "cases": cases}

    assert timeless(whole) == timeless(run)
    missing = command("report", "2.json", "--json", "some.json", cwd=folder)
    assert missing.code == 2 and "missing 1" in missing.err and not (folder / "some.json").exists()
    part = command("report", "2.json", "--html", "part.html", cwd=folder)
    assert part.code == 0 and (folder / "part.html").exists()


@pytest.mark.slow
def test_only_the_named_channels_run_and_each_has_a_line(command, tmp_path):
    folder = project(tmp_path, right="Planted")
    (folder / "pyproject.toml").write_text(SETTINGS + WAIVED)
    ended = command("run", "--channel", "program", "--channel", "tree", "--json", "r.json", cwd=folder)
    assert ended.code == 1, "the numbers would decide, and do not run"
    assert "right/forward@single  tree equal: " in ended.out
    assert command("run", "left", "--channel", "program", cwd=folder).code == 0
    cases = json.loads((folder / "r.json").read_text())["cases"]
    assert {tuple(case["channels"]) for case in cases} == {("program", "tree")}


@pytest.mark.slow
def test_a_waiver_of_a_channel_that_runs_must_match(command, tmp_path):
    folder = project(tmp_path)
    (folder / "pyproject.toml").write_text(SETTINGS + WAIVED)
    ended = command("run", "left/forward", "--channel", "values", cwd=folder)
    assert ended.code == 2 and "a waiver matches nothing" in ended.out


def test_under_github_actions_findings_are_annotations(ran, command, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ended = command("report", "r.json", cwd=ran[0])
    lines = [line for line in ended.out.splitlines() if line.startswith("::")]
    planted = (DENSE + TWINS).partition("jnp.sin")[0].count("\n") + 1
    assert len(lines) == 1 and lines[0].startswith(f"::error file=both_twins.py,line={planted},")


def test_forms_and_changes_of_a_report(ran, command):
    folder, _ = ran
    ended = command("report", "r.json", "--html", "x.html", "--since", "r.json", cwd=folder)
    assert (
        ended.code == 1 and "html: x.html" in ended.out and "2 passed, 1 failed: does not pass" in ended.out
    )
    assert "Nothing changed since the report before" in (folder / "x.html").read_text()


def test_two_records_are_compared_in_all_but_times(ran, monkeypatch, capsys):
    folder, _ = ran
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["records", "r.json", "same.json"])
    same = json.loads((folder / "r.json").read_text())
    same["seconds"] = same["cases"][0]["seconds"]["trace"] = 99
    (folder / "same.json").write_text(json.dumps(same))
    assert records.main() == 0, "though a case of both fails"
    assert capsys.readouterr().out == "3 and 3 cases: no differences\n"
    same["cases"][0]["channels"]["program"]["verdict"] = "bitwise"
    (folder / "same.json").write_text(json.dumps(same))
    assert records.main() == 1
    words = "left/forward@single program verdict: proved -> bitwise\n3 and 3 cases: 1 difference\n"
    assert capsys.readouterr().out == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("report none.json", "report none.json: No such file"),
        ("report pyproject.toml --html x.html", "report pyproject.toml: not valid JSON"),
        ("report r.json --html missing/x.html", "choose another with --html"),
        ("report r.json --html x --junit x", "--junit and --html: both name x"),
        ("run --channel nope", "--channel 'nope': expected one of program, exact, tree,"),
        ("bisect left/forward --search none --search op", "--search none: another search is named too"),
        ("run --shard 4/3", "expected a part of all"),
        ("report r.json r2.json --json x.json", "report r2.json: No such file"),
        ("report r.json r.json --json x.json", "a file is named twice"),
        ("gate both_", "flip: got both_, expected one of only_left, only_right, both; did you mean both?"),
        ("gate --from none.json", "report none.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(ran, command, arguments, words):
    ended = command(*arguments.split(), cwd=ran[0])
    assert (ended.code, ended.out) == (2, ""), ended
    assert words in ended.err and ended.err.count("\n") == 1
    assert not {"x", "x.html", "x.json"} & {path.name for path in ran[0].iterdir()} - {"x.html"}


@pytest.mark.long
def test_a_reader_that_goes_away_ends_the_run_with_a_partial_report(shell, tmp_path):
    folder = project(tmp_path)
    process = shell.start("run", "--json", "r.json", cwd=folder)
    try:
        assert "[1/3]" in process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        err = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130 and "the output pipe is closed" in err and "Traceback" not in err
    report = json.loads((folder / "r.json").read_text())
    assert report["partial"]["planned"] == 3 and 1 <= report["partial"]["finished"] < 3


@pytest.mark.long
def test_two_runs_into_one_report_leave_one_whole(shell, tmp_path):
    folder = project(tmp_path)
    both = [
        shell.start("run", "left/forward", "--json", "r.json", "--html", "r.html", cwd=folder) for _ in "ab"
    ]
    ends = [process.communicate(timeout=120) and process.returncode for process in both]
    assert ends == [0, 0]
    assert json.loads((folder / "r.json").read_text())["summary"]["passed"] == 1
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(("r.", ".r"))) == [
        "r.html",
        "r.json",
    ]
    assert (folder / "r.html").read_text().endswith("</html>")
