"""Text helpers that several forms of a report share."""

from parity.report.reading import Record
from parity.report.records import counts_text
from parity.run.explain import Explanation, explain
from parity.run.explain import blocking as explain_blocking
from parity.verdicts import channel_of, finding_of

__all__ = [
    "blocking",
    "explanation",
    "first_difference",
    "gate_blocks",
    "headline",
    "passes",
    "sentence",
]


def passes(report: Record) -> bool:
    """True if a report passes: it is complete, and nothing blocks a case or a flip."""
    return "partial" not in report and not any(map(blocking, report["cases"])) and not gate_blocks(report)


def explanation(case: Record) -> Explanation | None:
    """Returns the cause of a failed case, and the findings behind it; None if nothing blocks it."""
    return explain(case["id"], {name: channel_of(name, one) for name, one in case["channels"].items()})


def blocking(case: Record) -> list[tuple[str, Record]]:
    """Returns the channels that block a case, by name, worst first."""
    held = [channel_of(name, one) for name, one in case["channels"].items()]
    return [(one.name, case["channels"][one.name]) for one in explain_blocking(held)]


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
    words = counts_text(report)
    if partial := report.get("partial"):
        words += f"; partial: {partial['finished']} of {partial['planned']} cases finished"
    return words


def sentence(finding: Record) -> str:
    """Returns a finding of a record as one sentence."""
    return finding_of(finding).sentence()
