"""Waivers: a channel whose findings are all accepted becomes ``waived``."""

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from parity.cases.accepted import Waiver
from parity.cases.case import Case
from parity.cases.tables import unknown
from parity.channels import CHANNELS
from parity.run.record import Report
from parity.verdicts import BLOCKING, ChannelResult, Finding, Verdict

WAIVABLE = BLOCKING - {Verdict.ERROR}
"""Verdicts that can be waived; a crash is not a difference that could be accepted."""
PREFIX = "waived: "


def waive(
    case: str, channels: Mapping[str, ChannelResult], waivers: Sequence[Waiver]
) -> dict[str, ChannelResult]:
    """Returns the channels of a case; one whose findings are all accepted becomes ``waived`` and no longer blocks.

    Accepted findings come last and state the reason.
    """
    return {name: _waived(case, result, waivers) for name, result in channels.items()}


def _waived(case: str, result: ChannelResult, waivers: Sequence[Waiver]) -> ChannelResult:
    if result.verdict not in WAIVABLE:
        return result
    findings = result.findings or (
        Finding(where=result.name, reference="as the case demands", candidate=str(result.verdict)),
    )
    findings = tuple(_apart(findings, lambda finding: bool(_reason(case, result.name, finding, waivers))))
    reasons = [_reason(case, result.name, finding, waivers) for finding in findings]
    if not any(reasons):
        return result
    pairs = list(zip(findings, reasons, strict=True))
    left = [finding for finding, reason in pairs if not reason]
    accepted = [
        dataclasses.replace(finding, next_step=f"{PREFIX}{reason}") for finding, reason in pairs if reason
    ]
    count = f"{len(accepted)} of {len(findings)} findings waived"
    return dataclasses.replace(
        result,
        verdict=result.verdict if left else Verdict.WAIVED,
        detail=f"{result.detail}; {count}" if result.detail else count,
        findings=(*left, *accepted),
    )


def _apart(findings: Iterable[Finding], accepted: Callable[[Finding], bool]) -> Iterator[Finding]:
    """Yields findings, each followed by those of its dependent findings whose acceptance differs."""
    for finding in findings:
        differing = [one for one in finding.follows if accepted(one) != accepted(finding)]
        yield finding
        yield from differing


def _reason(case: str, channel: str, finding: Finding, waivers: Sequence[Waiver]) -> str:
    covering = (waiver for waiver in waivers if waiver.covers(case, channel, finding.where))
    return next((waiver.reason for waiver in covering), "")


def _accepts(waiver: Waiver, case: str, channel: str, finding: Finding) -> bool:
    """True if a finding of a report is accepted by a waiver, or one that follows from it is."""
    if not finding.next_step.startswith(PREFIX):
        return False
    own = finding.next_step == f"{PREFIX}{waiver.reason}" and waiver.covers(case, channel, finding.where)
    return own or any(waiver.covers(case, channel, one.where) for one in finding.follows)


def _near(channel: str) -> str:
    """Returns the end of a message on a channel that does not exist; empty for one that does."""
    return "" if fnmatch.filter(CHANNELS, channel) else f"; channel: {unknown(channel, CHANNELS)}"


def check_channels(cases: Iterable[Case]) -> None:
    """Raises ValueError, with the nearest name, if ``not_applicable`` of a case names no channel."""
    for case in cases:
        for name in case.accept.not_applicable:
            if name not in CHANNELS:
                raise ValueError(f"case {case.id}: not_applicable: {unknown(name, CHANNELS)}")


def unused_in(report: Report) -> list[str]:
    """Returns a sentence for each waiver that accepted nothing in any case that it covers.

    A waiver whose cases or channels were not run is not judged.
    """
    used: dict[Waiver, bool] = {}
    for waiver in report.waivers:
        known = fnmatch.filter(CHANNELS, waiver.channel)
        for case in report.cases:
            if known and case.channels.keys().isdisjoint(known):
                continue
            used[waiver] = used.get(waiver, False) or any(
                _accepts(waiver, case.id, name, finding)
                for name, channel in case.channels.items()
                for finding in channel.findings
            )
    return [
        f"a waiver expired on {waiver.expires}: {waiver.sentence()} ({waiver.reason}); mend the difference, or renew it"
        if waiver.expired
        else f"a waiver matches nothing: {waiver.sentence()} ({waiver.reason}); remove it, or correct its globs"
        f"{_near(waiver.channel)}"
        for waiver, found in used.items()
        if not found
    ]
