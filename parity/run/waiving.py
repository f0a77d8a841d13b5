"""Waivers: a channel whose findings are all accepted becomes ``waived``."""

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping, Sequence

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

    def reason(finding: Finding) -> str:
        covering = (waiver for waiver in waivers if waiver.covers(case, result.name, finding.place))
        return next((waiver.reason for waiver in covering), "")

    pairs: list[tuple[Finding, str]] = []
    for finding in findings:  # each followed by those of its dependent ones whose acceptance differs
        differing = (one for one in finding.follows if bool(reason(one)) != bool(reason(finding)))
        pairs += [(one, reason(one)) for one in (finding, *differing)]
    if not any(words for _, words in pairs):
        return result
    left = [finding for finding, reason in pairs if not reason]
    accepted = [
        dataclasses.replace(finding, next_step=f"{PREFIX}{reason}") for finding, reason in pairs if reason
    ]
    count = f"{len(accepted)} of {len(pairs)} findings waived"
    return dataclasses.replace(
        result,
        verdict=result.verdict if left else Verdict.WAIVED,
        detail=f"{result.detail}; {count}" if result.detail else count,
        findings=(*left, *accepted),
    )


def _accepts(waiver: Waiver, case: str, channel: str, finding: Finding) -> bool:
    """True if a finding of a report is accepted by a waiver, or one that follows from it is."""
    if not finding.next_step.startswith(PREFIX):
        return False
    own = finding.next_step == f"{PREFIX}{waiver.reason}" and waiver.covers(case, channel, finding.place)
    return own or any(waiver.covers(case, channel, one.place) for one in finding.follows)


def check_channels(cases: Iterable[Case]) -> None:
    """Raises ValueError, with the nearest name, if ``not_applicable`` of a case names no channel."""
    for case in cases:
        for name in case.accept.not_applicable:
            if name not in CHANNELS:
                raise ValueError(f"case {case.id}: not_applicable: {unknown(name, CHANNELS)}")


def unused_in(report: Report) -> list[str]:
    """Returns a sentence for each waiver that accepted nothing in any case that it covers.

    A waiver whose cases or channels were not run, or were skipped, is not judged.
    """
    used: dict[Waiver, bool] = {}
    for waiver in report.waivers:
        known = fnmatch.filter(CHANNELS, waiver.channel)
        for case in report.cases:
            ran = {name for name, channel in case.channels.items() if channel.verdict is not Verdict.SKIPPED}
            if known and ran.isdisjoint(known):
                continue
            used[waiver] = used.get(waiver, False) or any(
                _accepts(waiver, case.id, name, finding)
                for name, channel in case.channels.items()
                for finding in channel.findings
            )
    sentences = []
    for waiver in (waiver for waiver, found in used.items() if not found):
        words = f"{waiver.sentence()} ({waiver.reason})"
        known = fnmatch.filter(CHANNELS, waiver.channel)
        near = "" if known else f"; channel: {unknown(waiver.channel, CHANNELS)}"
        sentences.append(
            f"a waiver expired on {waiver.expires}: {words}; fix the difference, or renew it"
            if waiver.expired
            else f"a waiver matches nothing: {words}; remove it, or correct its globs{near}"
        )
    return sentences
