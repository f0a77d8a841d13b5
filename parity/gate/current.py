"""Updates an earlier report to the current waivers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from parity.cases.accepted import Waiver
from parity.report.reading import Record
from parity.report.records import channel_record, counted
from parity.run.run import verdict_of
from parity.run.waiving import PREFIX, waive
from parity.verdicts import ChannelResult, Verdict, channel_of

__all__ = ["with_current_waivers"]


def with_current_waivers(report: Record, waivers: Mapping[str, Sequence[Waiver]]) -> dict[str, Any]:
    """Returns a report as if its cases had run with the current waivers.

    A difference that a waiver now accepts does not block. One whose waiver was removed or has expired does.

    Args:
        report: as read.
        waivers: waivers of each existing case, by its id.
    """
    cases = [
        _case(case, waivers[case["id"]]) if case["id"] in waivers else dict(case) for case in report["cases"]
    ]
    held = {waiver for each in waivers.values() for waiver in each if not waiver.expired}
    return {
        **report,
        "cases": cases,
        "summary": counted(case["verdict"] for case in cases),
        "waivers": [waiver.fields() for waiver in sorted(held, key=msgspec.structs.astuple)],
    }


def _case(case: Record, waivers: Sequence[Waiver]) -> dict[str, Any]:
    before = {name: channel_of(name, one) for name, one in case["channels"].items()}
    after = waive(case["id"], {name: _unwaived(one) for name, one in before.items()}, waivers)
    changed = {
        name: channel_record(one)
        for name, one in after.items()
        if (one.verdict, one.findings) != (before[name].verdict, before[name].findings)
    }
    if not changed:
        return dict(case)
    return {**case, "channels": {**case["channels"], **changed}, "verdict": str(verdict_of(after))}


def _unwaived(result: ChannelResult) -> ChannelResult:
    """Returns a channel without its acceptances, of which the current waivers may renew some."""
    findings = tuple(
        dataclasses.replace(one, next_step=f"no longer {one.next_step}")
        if one.next_step.startswith(PREFIX)
        else one
        for one in result.findings
    )
    verdict = Verdict.FAILED if result.verdict is Verdict.WAIVED else result.verdict
    return dataclasses.replace(result, verdict=verdict, findings=findings)
