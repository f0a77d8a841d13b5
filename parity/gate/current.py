"""Updates an earlier report to the current waivers."""

import dataclasses
from collections.abc import Mapping, Sequence

from parity.cases.accepted import Waiver
from parity.run.record import CaseResult, Report, distinct
from parity.run.waiving import PREFIX, waive
from parity.verdicts import ChannelResult, Verdict


def with_current_waivers(report: Report, waivers: Mapping[str, Sequence[Waiver]]) -> Report:
    """Returns a report as if its cases had run with the current waivers.

    A difference that a waiver now accepts does not block. One whose waiver was removed or has expired does.
    """
    cases = tuple(_updated(one, waivers[one.id]) if one.id in waivers else one for one in report.cases)
    held = distinct(waiver for each in waivers.values() for waiver in each if not waiver.expired)
    return dataclasses.replace(report, cases=cases, waivers=held)


def _updated(case: CaseResult, waivers: Sequence[Waiver]) -> CaseResult:
    after = waive(case.id, {name: _unwaived(one) for name, one in case.channels.items()}, waivers)
    changed = {
        name: one
        for name, one in after.items()
        if (one.verdict, one.findings) != (case.channels[name].verdict, case.channels[name].findings)
    }
    return case.with_channels({**case.channels, **changed}) if changed else case


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
