"""Accepted differences: they are shown with their reason, do not block, and must exist."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from parity.cases.accepted import Waiver
from parity.cases.case import Case
from parity.cases.settings import SettingsError, _with_its_waivers, find_settings
from parity.cases.tables import read
from parity.run.record import CaseResult, Report
from parity.run.waiving import unused_in, waive
from parity.verdicts import ChannelResult, Finding, Verdict

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"


def finding(where):
    return Finding(where=where, reference="1", candidate="2")


def failed(*wheres, verdict=Verdict.FAILED):
    findings = tuple(map(finding, wheres))
    return {"tree": ChannelResult(name="tree", verdict=verdict, detail="two", findings=findings)}


def unused(results, waivers):
    return unused_in(Report(environment={}, seconds=1, cases=results, waivers=waivers))


def test_a_channel_passes_once_all_that_it_found_is_accepted():
    waivers = [
        Waiver(channel="tree", where="params/a*", reason="known"),
        Waiver(where="b", reason="also known"),
    ]
    channels = waive("mlp/grad@single", failed("b", "params/a/kernel"), waivers)
    assert (
        channels["tree"].verdict is Verdict.WAIVED
        and result("mlp/grad@single", (), channels).verdict == "passed"
    )
    assert channels["tree"].detail == "two; 2 of 2 findings waived"
    assert [one.next_step for one in channels["tree"].findings] == ["waived: also known", "waived: known"]


def test_remaining_findings_block_and_come_first():
    channels = waive("mlp/grad@single", failed("a", "b"), [Waiver(where="a", reason="known")])
    assert channels["tree"].verdict is Verdict.FAILED
    assert [one.where for one in channels["tree"].findings] == ["b", "a"]


def with_moment():
    """A parameter that differs, and its moment, whose finding is merged into it."""
    parameter = dataclasses.replace(finding("params/w"), follows=(finding("mu/w"),))
    return {"state": ChannelResult(name="state", verdict=Verdict.FAILED, detail="two", findings=(parameter,))}


@pytest.mark.parametrize(
    ("globs", "left"),
    [(("params/w",), ["mu/w"]), (("mu/w",), ["params/w"]), (("params/w", "mu/w"), []), (("*w",), [])],
)
def test_consequences_of_a_waived_finding_are_accepted(globs, left):
    waivers = tuple(Waiver(where=glob, reason=f"known: {glob}") for glob in globs)
    found = result("mlp/train_step@single", waivers, with_moment())
    state = found.channels["state"]
    assert [one.where for one in state.findings if not one.next_step.startswith("waived: ")] == left
    assert (state.verdict is Verdict.WAIVED) == (not left)
    assert unused([found], waivers) == []


@pytest.mark.parametrize(
    "waiver",
    [
        Waiver(case="other*", reason="known"),
        Waiver(channel="values", reason="known"),
        Waiver(where="params/b", reason="known"),
    ],
)
def test_globs_limit_a_waiver(waiver):
    assert waive("mlp/grad@single", failed("params/a"), [waiver])["tree"].verdict is Verdict.FAILED


def test_a_crash_is_not_waived_and_a_pass_is_left_alone():
    everything = [Waiver(reason="all")]
    assert waive("x", failed("a", verdict=Verdict.ERROR), everything)["tree"].verdict is Verdict.ERROR
    assert waive("x", failed("a", verdict=Verdict.FLOOR), everything)["tree"].verdict is Verdict.FLOOR
    bare = {"tree": ChannelResult(name="tree", verdict=Verdict.OPEN)}
    assert waive("x", bare, everything)["tree"].verdict is Verdict.WAIVED


def result(id, waivers, channels):
    case = Case(id=id, reference=lambda: 1 / 0, candidate=lambda: 1 / 0, program="grad")
    return CaseResult.of(case, waive(id, channels, waivers), {})


def test_a_waiver_that_matches_nothing_is_named():
    used, idle = Waiver(where="a", reason="known"), Waiver(case="mlp/*", where="zz", reason="long gone")
    waivers = (used, idle)
    results = [result("mlp/grad@single", waivers, failed("a")), result("mlp/forward@single", waivers, {})]
    (sentence,) = unused(results, waivers)
    assert sentence.startswith("a waiver matches nothing: case mlp/*, channel *, where zz (long gone)")


def test_a_waiver_of_a_channel_that_was_skipped_is_not_judged():
    waiver = Waiver(channel="loops", reason="unrolled")
    skipped = {"tree": ChannelResult(verdict=Verdict.FAILED), "loops": ChannelResult(verdict=Verdict.SKIPPED)}
    assert unused([result("mlp/grad@single", (waiver,), skipped)], (waiver,)) == []


def test_a_case_has_the_waivers_that_concern_it_or_no_case():
    """One of another case is not judged without that case; one of no case may be mistyped."""
    own, other, mistyped = (
        Waiver(case=f"{name}*", reason="known") for name in ("mlp/grad", "mlp/beam", "mpl")
    )
    case = Case(id="mlp/grad@single", reference=lambda: 1 / 0, candidate=lambda: 1 / 0, program="grad")
    given = case.with_accept(waivers=(own, other, mistyped))
    kept = _with_its_waivers(given, ["mlp/grad@single", "mlp/beam@single"]).accept.waivers
    assert kept == (own, mistyped)


def test_a_waiver_accepts_until_its_last_day(tmp_path):
    over, lasts = (Waiver(where="a", reason="known", expires=day) for day in ("2020-01-31", "2999-01-31"))
    assert waive("x", failed("a"), [lasts])["tree"].verdict is Verdict.WAIVED
    channels = waive("x", failed("a"), [over])
    assert channels["tree"].verdict is Verdict.FAILED
    assert unused([result("x", [over], failed("a"))], [over])[0].startswith(
        "a waiver expired on 2020-01-31: case *"
    )
    with pytest.raises(ValueError, match="got expires = 'soon', expected a day such as 2027-01-31"):
        Waiver(reason="known", expires="soon")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.parity]\npairs = ["a:B"]\n[[tool.parity.waivers]]\nreason = "r"\nexpires = 2027-01-31\n'
    )
    assert find_settings(tmp_path).waivers[0].expires == "2027-01-31"


def test_a_waiver_needs_a_reason():
    with pytest.raises(ValueError, match="waiver of case x"):
        Waiver(case="x", reason=" ")


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"reason": "x"}, "waivers: got {'reason': 'x'}, expected a list"),
        (["x"], "number 1: got 'x', expected a table"),
        ([{"reason": "x", "leaf": "a"}], "number 1: got leaf, expected one of reason, case, channel, where"),
        ([{"reason": "x"}, {"where": "a"}], "number 2: got no reason, expected reason = "),
        ([{"reason": " "}], "number 1: waiver of case *, channel *, where *: got no reason"),
        ([{"reason": "x", "where": 3}], "number 1.where: got 3, expected a text"),
    ],
)
def test_malformed_settings_are_refused(tables, words):
    with pytest.raises(ValueError) as raised:
        read(tuple[Waiver, ...], tables, "waivers")
    assert words in str(raised.value)


SETTINGS = '[tool.parity]\npairs = ["my_twins:PAIR"]\n[[tool.parity.waivers]]\n'


def test_settings_hold_waivers(tmp_path):
    (tmp_path / "pyproject.toml").write_text(SETTINGS + 'channel = "dots"\nreason = "kernels differ"\n')
    assert find_settings(tmp_path).waivers == (Waiver(channel="dots", reason="kernels differ"),)
    (tmp_path / "pyproject.toml").write_text(SETTINGS + 'channel = "dots"\n')
    with pytest.raises(SettingsError, match="got no reason"):
        find_settings(tmp_path)


@pytest.mark.long
def test_a_run_shows_waived_findings_and_refuses_waivers_that_match_nothing(command, tmp_path):
    text = EXAMPLE.read_text().replace("jax.nn.gelu(self.up", "jax.nn.silu(self.up")
    (tmp_path / "my_twins.py").write_text(text)
    settings = tmp_path / "pyproject.toml"
    settings.write_text(SETTINGS + 'case = "mlp/forward*"\nchannel = "values"\nreason = "silu is meant"\n')
    ended = command("run", "mlp/forward", cwd=tmp_path)
    assert "mlp/forward@single  findings waived: 1 of values (silu is meant)\n" in ended.out
    settings.write_text(SETTINGS + 'where = "nothing"\nreason = "gone"\n')
    shutil.copy(EXAMPLE, tmp_path / "my_twins.py")
    ended = command("run", "mlp/forward", cwd=tmp_path)
    assert (
        ended.code == 2 and "a waiver matches nothing: case *, channel *, where nothing (gone)" in ended.out
    )


@pytest.mark.parametrize(
    ("verdicts", "counts"),
    [
        ({}, True),
        ({"tree": Verdict.WAIVED}, True),
        ({"sharding": Verdict.WAIVED}, True),
        ({"values": Verdict.WAIVED}, False),
        ({"gradients": Verdict.WAIVED}, False),
        ({"state": Verdict.WAIVED}, False),
        ({"values": Verdict.WAIVED, "gradients": Verdict.WAIVED, "state": Verdict.WAIVED}, False),
        ({"program": Verdict.WAIVED}, False),
        ({"values": Verdict.FAILED}, False),
    ],
    ids=str,
)
def test_numbers_that_are_waived_are_not_equal(verdicts, counts):
    every = {
        "program": Verdict.UNPROVED,
        "tree": Verdict.EQUAL,
        "sharding": Verdict.EQUAL,
        **dict.fromkeys(("values", "gradients", "state"), Verdict.FLOOR),
        **verdicts,
    }
    channels = {name: ChannelResult(name=name, verdict=verdict) for name, verdict in every.items()}
    assert result("mlp/grad@single", (), channels).numbers_only == counts
