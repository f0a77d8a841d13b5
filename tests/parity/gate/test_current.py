"""The gate on an existing report: the current waivers of the settings apply."""

import dataclasses

import pytest
from rich.console import Console

from parity.cases.accepted import Waiver
from parity.gate.judge import judge
from parity.gate.table import print_gate
from parity.run.record import Judgement
from parity.run.waiving import with_current_waivers

FLIP = "mtp"
CASE = "mtp-a/grad@data8-auto"
FINDING = {"where": "head/kernel", "reference": "1", "candidate": "2"}
OTHER = {**FINDING, "where": "up/kernel"}
END = "2999-01-31"


def values(verdict, *findings):
    return {"verdict": verdict, "detail": "is that", "findings": list(findings)}


def accepted(finding, reason="known"):
    return {**finding, "next_step": f"waived: {reason}"}


def waiver(where="*", reason="known", expires=END, **rest):
    return Waiver(where=where, reason=reason, expires=expires, **rest)


def judged(report, rules, found, waivers, ids=(CASE,)):
    current = with_current_waivers(report(values={"mtp-a": found}), {one: tuple(waivers) for one in ids})
    readiness = judge(FLIP, current, rules, ids, {})
    (case,) = [one for one in current.cases if one.id == CASE]
    return readiness.verdict, case, current


@pytest.mark.parametrize("verdict", ["failed", "vacuous", "open"])
@pytest.mark.parametrize(
    "given",
    [
        waiver(),
        waiver("head/*"),
        waiver(channel="values"),
        waiver(case="mtp-*"),
        waiver(case=CASE, channel="v*", where="head/kernel"),
    ],
    ids=["all", "leaf", "channel", "case", "each"],
)
def test_a_waiver_that_is_newer_than_the_report_holds(report, rules, verdict, given):
    verdict, case, current = judged(report, rules, values(verdict, FINDING), [given])
    assert verdict == "ready" and case.channels["values"].verdict == "waived"
    assert case.channels["values"].findings[0].next_step == "waived: known"
    assert case.verdict == "passed" and current.waivers[0].expires == END


@pytest.mark.parametrize(
    ("found", "waivers"),
    [
        (values("failed", FINDING), []),
        (values("failed", FINDING), [waiver("up/*")]),
        (values("failed", FINDING), [waiver(channel="gradients")]),
        (values("failed", FINDING, OTHER), [waiver("head/*")]),
        (values("failed", FINDING), [waiver(expires="2020-01-31")]),
        (values("failed", FINDING), [waiver(expires="")]),
        (values("error", FINDING), [waiver()]),
        (values("waived", accepted(FINDING)), []),
        (values("waived", accepted(FINDING)), [waiver(expires="2020-01-31")]),
        (values("waived", accepted(FINDING)), [waiver("up/*")]),
        (values("waived", accepted(FINDING), accepted(OTHER)), [waiver("up/*")]),
    ],
    ids=[
        *("none", "another leaf", "another channel", "one of two", "expired", "endless", "error"),
        *("removed since", "expired since", "narrowed since", "one of two since"),
    ],
)
def test_findings_without_a_valid_waiver_block(report, rules, found, waivers):
    assert judged(report, rules, found, waivers)[0] == "blocked"


def test_a_waiver_with_another_reason_takes_the_place_of_the_old_one(report, rules):
    verdict, case, _ = judged(report, rules, values("waived", accepted(FINDING)), [waiver(reason="better")])
    assert verdict == "ready" and case.channels["values"].findings[0].next_step == "waived: better"


def test_unchanged_results_stay(report, rules):
    found = values("waived", accepted(FINDING))
    _, case, _ = judged(report, rules, found, [waiver()])
    assert case == next(one for one in report(values={"mtp-a": found}).cases if one.id == CASE)


def printed(flips, relaxed=(), notes=()):
    console = Console(width=100, record=True)
    print_gate(console, Judgement(flips=flips, relaxed=relaxed, notes=notes))
    return [line.split() for line in console.export_text().splitlines()]


def test_the_last_row_reports_that_relaxed_settings_block_the_gate(report, rules):
    readiness = [judge(FLIP, report(), rules, (CASE,), {})]
    looser = ["mtp.require is looser", "gate.require is looser"]
    rows = printed(readiness, looser)
    assert rows[1][:2] == [FLIP, "ready"] and rows[2] == ["looser", "settings", "blocked", "2"]


def test_no_row_is_added_without_looser_settings(report, rules):
    readiness = [judge(FLIP, report(), rules, (CASE,), {})]
    assert len(printed(readiness, notes=["a note"])) == 3


def test_few_cells_that_are_not_in_the_record_are_named(report, rules):
    ids = [f"dense-{name}/grad@data{size}-auto" for name in "ab" for size in (2, 4, 8, 16)]
    part = dataclasses.replace(report(), cases=())
    readiness = [judge("pure_nnx", part, rules, ids, {}, True)]
    rows = printed(readiness)
    (line,) = (" ".join(row) for row in rows if "record:" in row)
    assert line.endswith(" cells are not in the record: dense @data2-auto, dense @data4-auto and 2 more")
