"""JUnit XML: each case is a test case, so that any CI shows cases like tests."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from parity.run.record import PASSED, CaseResult, Report

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow, such as terminal escapes in a traceback."""
TAGS = {"error": "error", **dict.fromkeys(("failed", "vacuous", "open"), "failure")}
"""Verdict of a case that does not pass -> its element."""
WHY_SKIPPED = {"unproved": "neither a proof nor a run says that values agree"}


def junit(report: Report, earlier: Sequence[Report]) -> str:
    """Returns the report as JUnit XML.

    A blocked flip and an interrupted run are separate failures, so that no CI shows success.
    """
    suites = ElementTree.Element("testsuites")
    _suite(suites, "parity", [_case(case) for case in report.cases], report.seconds)
    extra = [_failure("gate", block.partition(":")[0], "blocked", block) for block in report.blocks]
    if report.partial:
        extra.append(_failure("run", "interrupted", "partial", report.partial.sentence()))
    if extra:
        _suite(suites, "parity.gate", extra, 0.0)
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    suites.set("time", f"{report.seconds:.3f}")
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _suite(parent: ElementTree.Element, name: str, cases: list[ElementTree.Element], seconds: float) -> None:
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    fields = {"name": name, **{key: str(count) for key, count in counts.items()}, "time": f"{seconds:.3f}"}
    ElementTree.SubElement(parent, "testsuite", fields).extend(cases)


def _test(group: str, name: str, seconds: float) -> ElementTree.Element:
    fields = {"classname": _clean(group), "name": _clean(name), "time": f"{seconds:.3f}"}
    return ElementTree.Element("testcase", fields)


def _failure(group: str, name: str, kind: str, text: str) -> ElementTree.Element:
    test = _test(group, name, 0.0)
    ElementTree.SubElement(test, "failure", {"message": _clean(text), "type": kind}).text = _clean(text)
    return test


def _case(case: CaseResult) -> ElementTree.Element:
    variant, _, rest = case.id.partition("/")
    test = _test(f"parity.{variant}", rest or variant, sum(case.seconds.values()))
    verdict = case.verdict
    if tag := TAGS.get(verdict):
        found = case.explanation
        lines = [f"{case.id}  {found.line}", *found.rest] if found else [verdict]
        fields = {"message": _clean(lines[0]), "type": verdict}
        ElementTree.SubElement(test, tag, fields).text = _clean("\n".join(lines))
        findings = (finding for one in case.blocking for finding in one.findings)
        if traces := [finding.traceback for finding in findings if finding.traceback]:
            ElementTree.SubElement(test, "system-err").text = _clean("\n".join(traces))
    elif verdict != PASSED:
        details = [one.detail for one in case.channels.values()]
        why = WHY_SKIPPED.get(verdict) or next(filter(None, details), verdict)
        ElementTree.SubElement(test, "skipped", {"message": _clean(why)})
    first = case.first_difference
    notes = [case.assumption, f"first difference: {first.sentence()}" if first else ""]
    if text := "\n".join(filter(None, notes)):
        ElementTree.SubElement(test, "system-out").text = _clean(text)
    return test


def _clean(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text)
