"""Budgets: ratios and slacks with reasons, from the project's file or a case, shown at their use."""

import dataclasses

import pytest

from parity.cases.accepted import MEMORY_BUDGETS, UNLIKE_BUDGETS, Budget, read_budgets
from parity.cases.settings import SettingsError, collect, find_settings
from parity.channels.memory import compare_memory
from parity.channels.results import budgeted
from parity.ir.hlo.memory import Memory
from parity.verdicts import ChannelResult, Finding, Verdict

REASON = {"reason": "measured"}


def memory(temp):
    return Memory(values={"argument": 64, "output": 64, "temp": temp}, reasons={})


@pytest.mark.parametrize(
    ("reference", "candidate", "passes"),
    [
        (0, 0, 1),
        (0, 1_024, 1),
        (0, 1_025, 0),
        (10**6, 1_010_000, 1),
        (10**6, 1_010_001, 0),
        (5_000, 6_000, 1),
    ],
)
def test_growth_from_nothing_has_a_slack(reference, candidate, passes):
    result = compare_memory(memory(reference), memory(candidate))
    assert (result.verdict is Verdict.EQUAL) == bool(passes)
    if passes and candidate > reference:
        assert "budget 1.01 x or 1,024 more (buffer assignment packs" in result.detail
    if not passes:
        grown = "1,025 more" if not reference else "1.010 x"
        assert result.findings[0].distance.startswith(f"{grown}, budget 1.01 x or 1,024 more")


def test_quantities_that_must_be_equal_have_no_slack():
    more = dataclasses.replace(memory(0), values={"argument": 65, "output": 63, "temp": 0})
    result = compare_memory(memory(0), more)
    assert [finding.where for finding in result.findings] == ["argument bytes", "output bytes"]
    assert MEMORY_BUDGETS["argument"].slack == MEMORY_BUDGETS["output"].slack == 0


@pytest.mark.parametrize(("reference", "candidate", "passes"), [(5_760, 7_680, 1), (10**6, 2 * 10**6, 0)])
def test_of_unlike_programs_kilobytes_are_no_evidence_and_a_doubled_buffer_is(reference, candidate, passes):
    assert compare_memory(memory(5_760), memory(7_680)).verdict is Verdict.FAILED  # of one program
    result = compare_memory(memory(reference), memory(candidate), UNLIKE_BUDGETS)
    assert (result.verdict is Verdict.EQUAL) == bool(passes)
    if passes:
        assert "grown 1.333 x, which only a larger size can settle" in result.detail


def failed():
    finding = Finding(where="all-gather", reference="none", candidate="one")
    return ChannelResult(name="collectives", verdict=Verdict.FAILED, detail="2 -> 3", findings=(finding,))


def test_a_difference_within_its_budgets_passes_with_a_note():
    wide = {
        "bytes": Budget(ratio=1.5, reason="a gather more"),
        "count": Budget(slack=1, reason="a gather more"),
    }
    totals = {"bytes": (100, 140), "count": (2, 3)}
    result = budgeted(failed(), wide, totals)
    assert result.verdict is Verdict.EQUAL and result.findings == failed().findings
    assert result.detail.startswith("2 -> 3; bytes 100 -> 140, budget 1.5 x (a gather more); count 2 -> 3, ")
    assert budgeted(failed(), {"bytes": wide["bytes"]}, totals).verdict is Verdict.FAILED
    assert budgeted(failed(), wide, {**totals, "bytes": (100, 151)}).verdict is Verdict.FAILED
    assert budgeted(failed(), {}, totals) == failed()


def test_a_difference_in_kind_only_needs_no_more_than_equal_totals():
    """Equal totals are within any budget: declaring one allows kinds to differ."""
    budget = {"bytes": Budget(reason="kinds may differ")}
    assert budgeted(failed(), budget, {"bytes": (100, 100), "count": (2, 2)}).verdict is Verdict.EQUAL


def test_budgets_are_read_from_the_project_and_reach_the_cases(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.parity]\npairs = ["parity.matrix.llama2:PAIR"]\n'
        '[tool.parity.budgets.memory]\ntemp = { ratio = 1.2, slack = 10, reason = "measured" }\n'
    )
    expected = {"memory.temp": Budget(ratio=1.2, slack=10, reason="measured")}
    assert find_settings(tmp_path).budgets == expected
    assert all(case.accept.budgets == expected for case in collect(start=tmp_path)[1])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"memry": {}}, "budgets: got memry, expected one of memory, .*; did you mean memory?"),
        ({"memory": {"tmp": REASON}}, "budgets.memory: got tmp, expected one of argument, "),
        (
            {"memory": {"temp": {**REASON, "ratio": "2"}}},
            "budgets.memory.temp.ratio: got '2', expected a number",
        ),
        ({"memory": {"temp": {**REASON, "slack": True}}}, "temp.slack: got True, expected a whole number"),
        ({"memory": {"temp": {**REASON, "slak": 1}}}, "budgets.memory.temp: got slak, .* did you mean slack"),
        ({"loops": {"count": {"ratio": 2}}}, "budgets.loops.count: got no reason"),
        ({"loops": 3}, "budgets.loops: got 3, expected a table"),
    ],
)
def test_bad_budgets_are_errors_with_their_place(table, message, tmp_path):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        read_budgets(table)


def test_a_bad_budget_in_the_file_names_the_file(tmp_path):
    text = '[tool.parity]\npairs = ["a:B"]\n[tool.parity.budgets.memory]\ntemp = { ratio = 1.2 }\n'
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(
        SettingsError, match=r"pyproject.toml \[tool.parity\]: budgets.memory.temp: got no reason"
    ):
        find_settings(tmp_path)
