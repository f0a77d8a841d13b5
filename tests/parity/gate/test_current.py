"""The gate on an existing report: waivers that have expired since, and the table."""

import dataclasses

import pytest
from rich.console import Console

from parity.cases.accepted import Waiver
from parity.gate.judge import judge
from parity.gate.table import print_gate
from parity.run.record import Judgement

FLIP = "mtp"
CASE = "mtp-a/grad@data8-auto"
WAIVED = {
    "verdict": "waived",
    "detail": "is that",
    "findings": [
        {"where": "head/kernel", "reference": "1", "candidate": "2", "next_step": "waived: known"},
    ],
}


@pytest.mark.parametrize(
    ("expires", "verdict"), [("2999-01-31", "ready"), ("2020-01-31", "blocked"), ("", "blocked")]
)
def test_a_waiver_of_a_report_holds_until_its_last_day(report, rules, expires, verdict):
    waivers = (Waiver(reason="known", expires=expires),)
    found = dataclasses.replace(report(values={"mtp-a": WAIVED}), waivers=waivers)
    assert judge(FLIP, found, rules, (CASE,), {}).verdict == verdict


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
