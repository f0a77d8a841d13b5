"""Interface of a report form, and text helpers that several forms share."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from parity.report.reading import Record
from parity.report.records import VERDICTS
from parity.verdicts import BLOCKING, Finding

__all__ = ["Form", "blocking", "first_difference", "gate_blocks", "headline", "passes", "places", "sentence"]

PLACE = re.compile(r"(?<![\w./-])([\w./-]+\.py):(\d+)\b")
SEVERITY = ("failed", "error", "vacuous", "open")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """A form of a report.

    Args:
        name: also the command-line option.
        about: one line for the help.
        render: report, earlier reports -> text.
    """

    name: str
    about: str
    render: Callable[[Record, Sequence[Record]], str]


def passes(report: Record) -> bool:
    """True if a report passes: it is complete, and nothing blocks a case or a flip."""
    return "partial" not in report and not any(map(blocking, report["cases"])) and not gate_blocks(report)


def blocking(case: Record) -> list[tuple[str, Record]]:
    """Returns the channels that block a case, by name, worst first."""
    held = [(name, one) for name, one in case["channels"].items() if one["verdict"] in BLOCKING]
    return sorted(held, key=lambda one: SEVERITY.index(one[1]["verdict"]))


def first_difference(case: Record) -> Record | None:
    """Returns the first difference of a case that passes without a proof; None if there is none."""
    program = case["channels"].get("program", {})
    rests = program.get("verdict") in ("unproved", "reordered") and not blocking(case)
    return program["findings"][0] if rests and program.get("findings") else None


def gate_blocks(report: Record) -> list[str]:
    """Returns a sentence for every block of a flip; empty if no gate judged the report."""
    return [
        f"{flip['name']}: {block}"
        for flip in report.get("gate", {}).get("flips", ())
        for block in flip["blocks"]
    ] + list(report.get("gate", {}).get("relaxed", ()))


def headline(report: Record) -> str:
    """Returns text such as ``5 passed, 1 failed``; for a partial report also the number of finished cases."""
    counts = [f"{report['summary'].get(name)} {name}" for name in VERDICTS if report["summary"].get(name)]
    words = ", ".join(counts) or "nothing ran"
    if partial := report.get("partial"):
        words += f"; partial: {partial['finished']} of {partial['planned']} cases finished"
    return words


def partial_words(partial: Record) -> str:
    """Returns the number of finished cases of a partial report, and the reason, as text."""
    why = partial.get("why", "the run was interrupted")
    return f"{partial['finished']} of {partial['planned']} cases finished before {why}"


def sentence(finding: Record) -> str:
    """Returns a finding of a record as one sentence."""
    fields: dict[str, Any] = {**finding, "labels": tuple(finding.get("labels", ("reference", "candidate")))}
    return Finding(**fields).sentence()


def places(finding: Record) -> list[tuple[str, int]]:
    """Returns the source lines that a finding names: those of the candidate alone, then shared ones, then others."""
    texts = (finding["candidate"], finding["reference"], finding["where"])
    left, right, rest = ([(file, int(line)) for file, line in PLACE.findall(text)] for text in texts)
    own = [place for place in left if place not in right]
    return list(dict.fromkeys((*own, *left, *right, *rest)))
