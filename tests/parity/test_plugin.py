"""The pytest entry point: ids and verdicts of ``parity run``, findings and no tracebacks, inactive unless requested."""

import itertools
import json
import types
from pathlib import Path

import pytest
from toys import DENSE

from parity.cases.case import Case
from parity.plugin import CaseItem, _is_requested
from parity.run.record import CaseResult
from parity.verdicts import ChannelResult, Verdict, plain

pytest_plugins = ["pytester"]

TWINS = """
def crash(out, batch):
    raise ZeroDivisionError("no luck")

SOUND = pair("sound")
WRONG = pair("wrong", nnx=lambda rngs: Nnx(rngs, jnp.sin))
CRASH = pair("crash", loss=crash)
OTHER = pair("other", nnx=lambda rngs: Nnx(rngs, lambda x: -jnp.tanh(-x)))
WIDE = pair("wide", meshes=["data64-auto"])
"""
PROGRAMS = ("forward", "grad", "train_step")
OURS = """
import os, sys
import pytest

def test_that_jax_was_left_alone():
    assert "JAX_PLATFORMS" not in os.environ and "XLA_FLAGS" not in os.environ
    assert "jax" not in sys.modules

@pytest.mark.slow
def test_slow():
    pass
"""


@pytest.fixture
def project(pytester, monkeypatch, shell):
    """A user's project with a few pairs and tests; runs pytest on it in a separate process."""
    for name, value in shell.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("JAX_PLATFORMS", "XLA_FLAGS", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(my_twins=DENSE + TWINS, test_own=OURS)

    def run(*arguments, pairs=("SOUND",), left=("-p", "no:cacheprovider")):
        named = ", ".join(f'"my_twins:{pair}"' for pair in pairs)
        pytester.makepyprojecttoml(
            f"[tool.parity]\npairs = [{named}]\ncache-ignores = ['std*', 'runpytest-*']\n"
            "[tool.pytest.ini_options]\nmarkers = ['slow: long']\n"
        )
        loaded = () if shell.installed else ("-p", "parity.plugin")
        return pytester.runpytest_subprocess(*loaded, *left, *arguments, timeout=120)

    return run


def ids(*pairs):
    return [f"{pair}/{program}@single" for pair in pairs for program in PROGRAMS]


def records(folder):
    return json.loads((Path(folder) / "parity.json").read_text())


# --- inactive unless requested ---


@pytest.mark.long
@pytest.mark.parametrize(
    ("mark", "chosen"), [((), 2), (("-m", "not parity"), 2), (("-m", "slow and not (parity)"), 1)], ids=str
)
def test_without_the_mark_no_case_is_collected_and_jax_is_left_alone(project, mark, chosen):
    result = project("-v", *mark)
    result.assert_outcomes(passed=chosen, deselected=2 - chosen)
    result.stdout.no_fnmatch_line("*parity::*")


@pytest.mark.parametrize(
    ("expression", "requested"),
    [
        ("parity", True),
        ("parity or slow", True),
        ("not slow or parity", True),
        ("parity and not slow", True),
        ("not (slow or not parity)", True),
        ("", False),
        ("slow", False),
        ("not slow", False),
        ("parityx", False),
        ("not parity", False),
        ("not (slow or parity)", False),
        ("not(parity)", False),
        ("parity and core", False),
        ("slow and parity", False),
    ],
)
def test_cases_are_requested_by_an_expression_that_selects_them(expression, requested):
    assert _is_requested(expression) is requested


def test_a_malformed_expression_is_wrong_usage():
    with pytest.raises(pytest.UsageError, match="Wrong expression passed to '-m': parity and"):
        _is_requested("parity and")


@pytest.mark.long
def test_the_mark_is_registered_for_strict_projects(project, pytester):
    pytester.makepyfile(test_strict="import pytest\n\n@pytest.mark.parity\ndef test_mine():\n    pass\n")
    project("--strict-markers", "test_strict.py").assert_outcomes(passed=1)
    assert "parity: a parity case" in project("--markers").stdout.str()


# --- cases as tests ---


@pytest.mark.long
def test_the_cases_of_the_command_line_with_its_ids(project, shell, pytester):
    result = project("-m", "parity", "-v", "--parity-report=out", pairs=("SOUND", "WRONG", "CRASH"))
    result.assert_outcomes(passed=4, failed=5, deselected=2)
    assert result.ret == 1
    shell("run", "--json", "cli.json", cwd=pytester.path)
    left, right = records("out"), json.loads((pytester.path / "cli.json").read_text())
    assert list(left) == list(right) and left["summary"] == right["summary"]
    assert list(left["environment"]) == list(right["environment"])
    assert [case["id"] for case in left["cases"]] == ids("sound", "wrong", "crash")
    for one, other in zip(left["cases"], right["cases"], strict=True):
        assert list(one) == list(other)
        verdicts = [{name: c["verdict"] for name, c in each["channels"].items()} for each in (one, other)]
        assert verdicts[0] == verdicts[1]


@pytest.mark.long
def test_failures_print_findings_and_no_traceback(project):
    result = project("-m", "parity", pairs=("WRONG", "CRASH"))
    text = result.stdout.str()
    for words in (
        "wrong/forward@single  program differs: another operation: reference tanh at ",
        "values: 1 of 1 leaves differ",
        "outputs[",
        "wrong/grad@single  program differs: ",
        "params/dense/kernel[",
        "next: parity bisect wrong/grad@single",
        "linen crash, trace: ZeroDivisionError: no luck",
        "FAILED parity::wrong/forward@single",
    ):
        assert words in text, words
    for words in ("Traceback", "def runtest", "plugin.py"):
        assert words not in text, words


@pytest.mark.long
def test_workers_share_the_cases_and_one_process_writes_the_report(project, pytester):
    (pytester.path / "out").mkdir()
    result = project("-m", "parity", "-n", "2", "--parity-report=out", pairs=("SOUND", "WRONG"))
    result.assert_outcomes(passed=3, failed=3)
    report = records("out")
    assert sorted(case["id"] for case in report["cases"]) == sorted(ids("sound", "wrong"))
    assert report["summary"]["failed"] == 3 and "partial" not in report
    assert [path.name for path in (pytester.path / "out").iterdir()] == ["parity.json"]


@pytest.mark.long
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_a_session_that_stops_early_writes_a_partial_report(project, pytester, workers):
    (pytester.path / "out").mkdir()
    result = project("-m", "parity", "-x", "--parity-report=out", *workers, pairs=("WRONG", "SOUND"))
    assert result.ret in (1, 2)
    report = records("out")
    assert report["partial"] == {"planned": 6, "finished": len(report["cases"])}
    assert 1 <= len(report["cases"]) < 6


@pytest.mark.long
def test_cases_left_out_on_purpose_do_not_make_a_report_partial(project, pytester):
    (pytester.path / "out").mkdir()
    project("-m", "parity", "-k", "grad", "--parity-report=out").assert_outcomes(passed=1, deselected=4)
    assert [case["id"] for case in records("out")["cases"]] == ["sound/grad@single"]
    assert "partial" not in records("out")


@pytest.mark.long
def test_settings_are_recorded_as_on_the_command_line(project, pytester):
    """The gate refuses a report of changed cases."""
    (pytester.path / "out").mkdir()
    case = "llama2-scan-against-unroll-nnx/forward@single"
    options = (
        "--parity-pair",
        "parity.matrix.llama2:PAIR",
        "--parity-select",
        case,
        "--parity-set",
        "layers=1",
    )
    result = project("-m", "parity", *options, "--parity-report=out")
    result.assert_outcomes(passed=1, deselected=2)
    assert records("out")["environment"]["settings"] == {"layers": "1"}


@pytest.mark.long
def test_a_mark_expression_with_other_marks(project):
    result = project("-m", "parity or slow", "-v")
    result.assert_outcomes(passed=4, deselected=1)
    result.stdout.fnmatch_lines(["*::test_slow PASSED*", "parity::sound/forward@single PASSED*"])


@pytest.mark.long
def test_selecting_adding_pairs_and_junit(project, pytester):
    result = project(
        "-m", "parity", "-v", "--parity-select", "sound/f*", "--parity-select", "wrong/grad",
        "--parity-pair", "my_twins:WRONG", "--parity-paranoid", "--junitxml=junit.xml",
    )  # fmt: skip
    result.assert_outcomes(passed=1, failed=1, deselected=2)
    result.stdout.fnmatch_lines(["parity::sound/forward@single PASSED*", "parity::wrong/grad@single FAILED*"])
    written = (pytester.path / "junit.xml").read_text()
    assert "wrong/grad@single  program differs" in written and "\n  gradients failed" in written


@pytest.mark.long
def test_a_required_rung_holds_as_on_the_command_line(project, shell, pytester):
    (pytester.path / "out").mkdir()
    options = ("-k", "forward", "--parity-report=out", "--parity-pair", "my_twins:OTHER")
    project("-m", "parity", *options).assert_outcomes(passed=2, deselected=6)
    result = project("-m", "parity", *options, "--parity-require", "proved")
    result.assert_outcomes(passed=1, failed=1, deselected=6)
    text = result.stdout.str()
    assert "FAILED parity::other/forward@single" in text and "values failed" in text
    ended = shell(
        "run", "other/forward", "--pair", "my_twins:OTHER", "--require", "proved", cwd=pytester.path
    )
    assert ended.code == 1 and "values failed" in ended.out


@pytest.mark.long
def test_cached_verdicts_are_reused_until_something_changes(project, pytester, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ("-m", "parity", "--parity-cached", "-p", "no:cacheprovider")
    reused = "parity: 3 of 6 verdicts from the cache"
    pairs = ("SOUND", "WRONG")
    first = project(*options, pairs=pairs)
    first.assert_outcomes(passed=3, failed=3, deselected=2)
    first.stdout.no_fnmatch_line("*from the cache*")
    second = project(*options, pairs=pairs)
    second.assert_outcomes(passed=3, failed=3, deselected=2)
    second.stdout.fnmatch_lines([reused])
    project("-m", "parity", pairs=pairs).stdout.no_fnmatch_line("*from the cache*")
    source = pytester.path / "my_twins.py"
    source.write_text(source.read_text().replace("x: rng", "x : rng") + "\n")
    third = project(*options, pairs=pairs)
    third.assert_outcomes(passed=3, failed=3, deselected=2)
    third.stdout.no_fnmatch_line("*from the cache*")


@pytest.mark.long
def test_a_verdict_is_not_cached_once_another_test_ran_in_the_process(project, tmp_path, monkeypatch):
    """Such a test may have changed the models. A call with other arguments is not served: its conftests may differ."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        result = project("-m", "parity or slow", "--parity-cached")
        result.assert_outcomes(passed=4, deselected=1)
        result.stdout.fnmatch_lines(["parity: no verdict is cached; *another test ran*test_slow*"])
    project("-m", "parity", "--parity-cached").stdout.no_fnmatch_line("*from the cache*")
    project("-m", "parity", "--parity-cached", "-v").stdout.no_fnmatch_line("*from the cache*")


@pytest.mark.long
def test_what_a_conftest_reads_before_the_cases_counts(project, pytester, tmp_path, monkeypatch):
    """The file is outside the project, and read before the plugin is configured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rates = tmp_path / "rates.txt"
    rates.write_text("1")
    pytester.makeconftest(f"RATES = open({str(rates)!r}).read()")
    options = ("-m", "parity", "--parity-cached")
    project(*options).assert_outcomes(passed=3, deselected=2)
    project(*options).stdout.fnmatch_lines(["parity: 3 of 3 verdicts from the cache"])
    rates.write_text("2")
    project(*options).stdout.no_fnmatch_line("*from the cache*")


FAILS = {"failed", "vacuous", "error", "open"}


@pytest.mark.parametrize("name", ["program", "values", "state"])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_case_fails_its_test_by_each_verdict_that_blocks_and_by_no_other(name, verdict):
    """Any channel may have the verdict, among others that pass; the record has the same verdict."""
    case = Case(id="one/grad@single", reference=str, candidate=str, program="grad")
    channels = {other: ChannelResult(name=other, verdict=Verdict.PROVED) for other in ("tree", "inputs")}
    channels[name] = ChannelResult(name=name, verdict=verdict, detail="what it saw")
    result = CaseResult.of(case, channels, {})
    item = types.SimpleNamespace(case=case, run=lambda case: result, user_properties=[])
    if verdict in FAILS:
        with pytest.raises(pytest.fail.Exception, match=f"{name} {verdict}"):
            CaseItem.runtest(item)
    else:
        CaseItem.runtest(item)
    record = plain(result)
    assert item.user_properties == [("parity", record)]
    assert (record["verdict"] in FAILS) == (verdict in FAILS)


@pytest.mark.parametrize(
    "verdicts", list(itertools.product(["proved", "skipped", "open", "failed"], repeat=2))
)
def test_a_case_is_skipped_only_if_every_channel_is_skipped(verdicts):
    case = Case(id="one/grad@single", reference=str, candidate=str, program="grad")
    channels = {
        name: ChannelResult(name=name, verdict=Verdict(verdict))
        for name, verdict in zip(("program", "values"), verdicts, strict=True)
    }
    result = CaseResult.of(case, channels, {})
    item = types.SimpleNamespace(case=case, run=lambda case: result, user_properties=[])
    if FAILS & set(verdicts):
        with pytest.raises(pytest.fail.Exception):
            CaseItem.runtest(item)
    elif set(verdicts) == {"skipped"}:
        with pytest.raises(pytest.skip.Exception):
            CaseItem.runtest(item)
    else:
        CaseItem.runtest(item)


# --- bad input: one message, no traceback, pytest's exit code 4 ---


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--parity-select", "sond"), "selector 'sond': matches none of 3 cases; did you mean sound"),
        (("-n", "2", "--parity-select", "sond"), "selector 'sond': matches none of 3 cases"),
        (("--parity-backend", "cpv"), "backend 'cpv': expected one of"),
        (("--parity-pair", "nope:PAIR"), "pair 'nope:PAIR': No module named 'nope'"),
        (
            ("--parity-pair", "my_twins:WIDE", "--parity-select", "wide"),
            "mesh data64-auto: needs 64 devices, found 8",
        ),
        (("--parity-report=missing/out",), "folder missing/out does not exist"),
        (("--parity-require", "prooved"), "--parity-require: got 'prooved'"),
        (("--parity-set", "width"), "--parity-set 'width': expected FIELD=VALUE"),
        (("--parity-set", "width=3"), "got settings {'width': '3'}, expected none; it has no config"),
        (("--parity-report", "out"), "write it with an equals sign, --parity-report=out"),
    ],
    ids=[
        "selector",
        "selector with xdist",
        "backend",
        "pair",
        "mesh",
        "report",
        "rung",
        "setting",
        "field",
        "a space",
    ],
)
def test_bad_input_is_one_message(project, arguments, words):
    result = project("-m", "parity", *arguments)
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == 4, text
    assert words in text
    assert "Traceback" not in text and "INTERNALERROR" not in text and "plugin.py" not in text


@pytest.mark.long
def test_a_mesh_that_is_too_large_fails_its_cases_alone(project):
    result = project("-m", "parity", "--parity-pair", "my_twins:WIDE")
    result.assert_outcomes(passed=3, failed=3, deselected=2)
    assert "mesh data64-auto: needs 64 devices, found 8" in result.stdout.str()


@pytest.mark.long
def test_without_settings_the_first_step_is_shown(pytester, shell, monkeypatch):
    for name, value in shell.environment().items():
        monkeypatch.setenv(name, value)
    loaded = () if shell.installed else ("-p", "parity.plugin")
    ended = pytester.runpytest_subprocess(*loaded, "-m", "parity", timeout=120)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(
        ["ERROR: *no pyproject.toml here or above has [[]tool.parity]. To begin, write a pair*"]
    )
