"""Rules are read or refused with a message; settings relaxed since the merge base block; baselines keep rungs."""

import copy
import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from parity.cases.settings import SettingsError
from parity.gate.baselines import accept, fallen
from parity.gate.flips import find_rules, read_rules
from parity.gate.relaxation import compare, relaxed
from parity.report.changes import changes


def put(table, path, value):
    *folders, last = path.split(".")
    for folder in folders:
        table = table.setdefault(folder, {})
    table[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("flips.mtp.cases", [], "flips.mtp: got cases, expected one of about"),
        ("flips.mtp.featurs", {}, "did you mean features?"),
        ("flips.mtp.features", {}, "flips.mtp.features: got {}, expected a table such as { decoder"),
        ("flips.mtp", {}, "flips.mtp: got no features, expected features = a table such as { decoder"),
        ("flips.mtp.features", {"a": []}, "flips.mtp.features.a: got [], expected selectors such as"),
        ("flips.mtp.features", {"a": [3]}, "flips.mtp.features.a, number 1: got 3, expected a text"),
        (
            "flips.mtp.features",
            {"b": ["x"], "a": {"cases": []}},
            "flips.mtp.features.a.cases: got [], expected",
        ),
        (
            "flips.mtp.features",
            {"a": {"case": ["x"]}},
            "flips.mtp.features.a: got case, expected one of cases",
        ),
        ("flips.mtp.features", {"a": "x"}, "flips.mtp.features.a: got 'x', expected selectors such as"),
        ("flips.mtp.require", {"valeus": "proved"}, "flips.mtp.require: got valeus"),
        ("flips.mtp.require", {"values": "equals"}, "flips.mtp.require.values: got 'equals'"),
        ("flips.mtp.require", {"values": ["floor", "exakt"]}, "flips.mtp.require.values: got 'exakt'"),
        ("flips.mtp.require", {"values": []}, "flips.mtp.require.values: got 'nothing'"),
        ("flips.mtp.require", {"values": 3}, "flips.mtp.require.values: got 3, expected a text or a list"),
        ("flips.mtp.require", {"values": [["floor"]]}, "got ['floor'], expected one or several of proved"),
        (
            "flips.mtp.budgets",
            {"memory": {"temp": {"ratio": 2}}},
            "flips.mtp.budgets.memory.temp: got no reason",
        ),
        ("flips.mtp.meshes", "x", "flips.mtp.meshes: got 'x', expected a list"),
        ("flips.mtp", 3, "flips.mtp: got 3, expected a table"),
        ("gate.not_applicable", [{"mesh": "single"}], "gate.not_applicable, number 1: got no reason"),
        ("gate.tolerances", {"floor": 100}, "gate.tolerances.floor: got 100, the engine's is 10"),
        ("gate.tolerances", {"flor": 10}, "did you mean floor?"),
        ("gate.base", 3, "gate.base: got 3, expected a text"),
        ("relaxed", [{"what": "x", "reason": "y"}], "relaxed, number 1: got no expires"),
        (
            "relaxed",
            [{"what": " ", "reason": "y", "expires": "2027-01-31"}],
            "number 1.what: got ' ', expected the key",
        ),
        ("gate.not_applicable", [{"reason": " "}], "gate.not_applicable, number 1.reason: got ' ', expected"),
        ("gate.tolerances", {"floor": True}, "gate.tolerances.floor: got True, expected a number"),
        ("gate.tolerances", {"floor": float("nan")}, "gate.tolerances.floor: got nan, the engine's is 10"),
        ("relaxed", [{"what": "x", "reason": "y", "expires": "soon"}], "got expires = 'soon'"),
    ],
)
def test_errors_name_the_mistake(table, path, value, words):
    put(table, path, value)
    with pytest.raises(ValueError, match=r".") as refused:
        read_rules(table)
    assert words in str(refused.value)


def test_a_flip_must_demand_something(table):
    del table["gate"]["require"]
    with pytest.raises(ValueError, match=r"flips.pure_nnx: got no demands"):
        read_rules(table)


def test_a_project_without_flips_gets_the_first_step(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["a:B"]\n')
    with pytest.raises(SettingsError, match=r"got no flips, expected \[tool.parity.flips.NAME\]"):
        find_rules(tmp_path)


def test_the_flips_of_this_project_are_read():
    rules = find_rules(Path(__file__).parents[3])
    models = "enable_nnx pure_nnx_decoder pure_nnx shard_mode_explicit"
    features = "scan_layers prefetch_weights vocab_tiling diloco mtp"
    assert list(rules.flips) == f"{models} {features}".split()


@pytest.mark.parametrize(
    ("before", "after", "looser"),
    [
        ("floor", "exact", True),
        ("exact", "floor", True),
        ("floor", ["floor", "exact"], True),
        (["floor", "exact"], "floor", False),
        (["floor", "exact"], ["exact", "floor"], False),
        ("bitwise", "reordered", True),
        ("reordered", "bitwise", True),
        (["floor", "exact"], "reordered", False),
        ("passes", ["floor", "exact"], False),
        (["floor", "exact"], "passes", True),
        ("equal", "bitwise", False),
        ("passes", "unproved", True),
    ],
)
def test_of_two_requirements_either_may_be_looser(table, before, after, looser):
    old, new = copy.deepcopy(table), copy.deepcopy(table)
    put(old, "flips.mtp.require", {"values": before})
    put(new, "flips.mtp.require", {"values": after})
    assert bool(compare(old, new, {}, "abc").blocks) == looser


@pytest.mark.parametrize(
    ("was", "now", "word"),
    [
        ("proved", "floor", "worse"),
        ("reordered", "bitwise", "neither includes the other"),
        ("floor", "exact", "neither includes the other"),
        ("exact", "floor", "neither includes the other"),
        ("unproved", "failed", "worse"),
        ("floor", "bitwise", "better"),
        ("exact", "proved", "better"),
        ("exact", "reordered", "better"),
    ],
)
def test_baselines_and_changes_have_the_order_of_the_ladder(report, tmp_path, was, now, word):
    accept(tmp_path / "baselines", report(values={"moe-a": was}))
    later = report(values={"moe-a": now})
    assert bool(fallen(tmp_path / "baselines", later.cases)) == (word != "better")
    ((sentence, worse),) = changes(report(values={"moe-a": was}), later)
    assert worse == (word != "better") and sentence.endswith(f"{was} -> {now}, {word}")


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("gate.require.values", "floor", "gate.require.values"),
        ("flips.pure_nnx.features.dense", ["dense-scan"], "flips.pure_nnx.features.dense.cases.dense"),
        (
            "flips.pure_nnx.features.moe.require.values",
            "passes",
            "flips.pure_nnx.features.moe.require.values",
        ),
        ("flips.scan_layers.meshes", [], "flips.scan_layers.meshes.*-auto"),
        ("flips.mtp", None, "flips.mtp"),
        ("budgets.memory.temp", {"ratio": 1.5, "reason": "why"}, "budgets.memory.temp.ratio"),
        ("budgets.memory.temp", {"slack": 5, "reason": "why"}, "budgets.memory.temp.slack"),
        ("gate.tolerances.floor", 20.0, "gate.tolerances.floor"),
        (
            "gate.not_applicable",
            [{"mesh": "single", "channel": "loops", "reason": "r"}, {"channel": "rng", "reason": "r"}],
            "gate.not_applicable.*/*/rng",
        ),
    ],
)
def test_a_relaxation_blocks_unless_an_entry_gives_the_reason(table, path, value, key):
    before = copy.deepcopy(table)
    put(before, "gate.tolerances.floor", 10.0)
    after = copy.deepcopy(before)
    put(after, path, value)
    if value is None:
        del after["flips"]["mtp"]
    found = compare(before, after, {}, "abc")
    assert any(block.startswith(f"{key} is looser than at abc") for block in found.blocks)
    entries = {block.split(" is looser")[0]: "agreed" for block in found.blocks}
    allowed = compare(before, after, entries, "abc")
    assert not allowed.blocks and any("agreed" in note for note in allowed.notes)
    assert not compare(before, before, {}, "abc").blocks
    assert not compare(after, before, {}, "abc").blocks or path == "flips.pure_nnx.features.dense"


def test_a_demand_of_one_flip_or_feature_below_that_of_all_is_looser(table):
    """Else a line in a flip would silently undo the gate's requirement."""
    table["gate"]["require"] = {"values": "bitwise"}
    table["flips"] = {"mtp": {"features": {"mtp": {"cases": ["mtp"]}}}}
    for path in ("flips.mtp.require", "flips.mtp.features.mtp.require"):
        after = copy.deepcopy(table)
        put(after, path, {"values": "floor"})
        assert compare(table, after, {}, "abc").blocks[0].startswith(f"{path}.values is looser")
        assert not compare(after, table, {}, "abc").blocks
        put(after, path, {"values": "proved"})
        assert not compare(table, after, {}, "abc").blocks
        assert compare(after, table, {}, "abc").blocks[0].startswith(f"{path}.values is looser")
    after = copy.deepcopy(table)
    after["flips"]["new"] = {"require": {"values": "floor"}, "features": {"new": ["new"]}}
    assert not compare(table, after, {}, "abc").blocks


def test_the_first_flips_of_a_project_relax_nothing(table):
    assert not compare({"pairs": ["a:B"]}, table, {}, "abc").blocks


PROJECT = """
[tool.parity]
pairs = ["a:B"]
[tool.parity.gate]
require = {{ values = "{demand}" }}
{more}
[tool.parity.flips.mtp]
features = {{ mtp = ["mtp"] }}
{entry}
"""
ENTRY = '[[tool.parity.relaxed]]\nwhat = "gate.require.values"\nreason = "agreed"\nexpires = {day}\n'


@pytest.fixture
def project(tmp_path):
    """``project(demand=..., commit=True)`` writes settings into a repository."""

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(demand="bitwise", more="", entry="", branch=""):
        (tmp_path / "pyproject.toml").write_text(PROJECT.format(demand=demand, more=more, entry=entry))
        if branch:
            git("checkout", "-q", "-b", branch)
        return find_rules(tmp_path)

    git("init", "-q")
    write()
    git("add", ".")
    git("commit", "-q", "-m", "first")
    write.git = git
    return write


def test_the_merge_base_is_read(project):
    project.git("branch", "-M", "main")
    assert not relaxed(project(branch="change")).blocks
    assert not relaxed(project(demand="proved")).blocks
    found = relaxed(project(demand="floor"))
    assert len(found.blocks) == 1 and 'what = "gate.require.values"' in found.blocks[0]
    assert not relaxed(project(demand="floor", entry=ENTRY.format(day="2999-01-31"))).blocks
    assert relaxed(project(demand="floor", entry=ENTRY.format(day="2020-01-31"))).blocks


def test_a_requirement_raised_on_main_since_then_is_no_relaxation(project):
    project.git("branch", "-M", "main")
    project.git("branch", "change")
    project(demand="proved")
    project.git("commit", "-q", "-am", "stricter")
    project.git("checkout", "-q", "change")
    assert not relaxed(project()).blocks


def test_a_base_that_is_named_and_not_there_blocks_and_none_at_all_is_said(project):
    project.git("branch", "-M", "topic")
    assert "fetch-depth: 0" in relaxed(project(more='base = "origin/main"')).blocks[0]
    assert "fetch-depth: 0" in relaxed(project(), "nowhere").blocks[0]
    found = relaxed(project())
    assert not found.blocks and "none of the branches" in found.notes[0]


def test_settings_at_the_merge_base_that_are_none_today_are_a_note(project, tmp_path):
    """An older version may have been able to read them."""
    settings = tmp_path / "pyproject.toml"
    settings.write_text(settings.read_text() + "[tool.parity.budgets.memory]\ntemp = { ratio = 2.0 }\n")
    project.git("commit", "-q", "-am", "a budget without a reason")
    project.git("branch", "-M", "main")
    found = relaxed(project(branch="change"))
    assert not found.blocks and "budgets.memory.temp: got no reason" in found.notes[0]


def test_a_rung_below_the_accepted_one_has_fallen(report, tmp_path):
    folder = tmp_path / "baselines"
    first = report()
    failed = dataclasses.replace(first.cases[0], verdict="failed")
    first = dataclasses.replace(first, cases=(failed, *first.cases[1:]))
    assert len(accept(folder, first)) == 5 and len(list(folder.iterdir())) == 5
    assert fallen(folder, report().cases) == {}
    found = fallen(folder, report(values={"moe-a": "floor", "dense-scan/forward": "floor"}).cases)
    assert list(found) == ["moe-a/grad@expert8-auto"]
    assert found["moe-a/grad@expert8-auto"][0].startswith("values fell from proved to floor")
    gone = report(values={"moe-a": None}).cases
    assert "proved to missing" in fallen(folder, gone)["moe-a/grad@expert8-auto"][0]
    accept(folder, report(values={"moe-a": "floor"}))
    assert fallen(folder, report(values={"moe-a": "floor"}).cases) == {}
    next(folder.glob("moe*")).write_text(json.dumps({"channels": {"values": "fine"}}))
    with pytest.raises(ValueError, match=r"channels.values: got fine, .*; accept the case again"):
        fallen(folder, report().cases)
