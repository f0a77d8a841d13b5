"""GitHub annotations: workflow commands, one per line, that appear at the source lines of a pull request."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from parity.report.formats.form import (
    explanation,
    first_difference,
    gate_blocks,
    sentence,
)
from parity.report.reading import Record
from parity.report.records import partial_words
from parity.run.explain import places
from parity.verdicts import finding_of

__all__ = ["annotations"]

MOST = 10
"""Maximum number of errors that GitHub shows per step; the last one here gives the number of those left out."""


def annotations(report: Record, earlier: Sequence[Record]) -> str:
    """Returns workflow commands, the worst first: errors, then warnings for waived and unproved cases.

    Findings of several cases at one source line become one annotation.

    Args:
        report: as read.
        earlier: ignored.
    """
    groups: dict[tuple[str, int, str], list[str]] = {}
    for case in report["cases"]:
        for place, title, text in _errors(case):
            groups.setdefault((*place, title), []).append(f"{case['id']}: {text}")
    lines = [_grouped("error", texts, *place) for place, texts in groups.items()]
    lines += [_command("error", block, {"title": "flip held back"}) for block in gate_blocks(report)]
    if partial := report.get("partial"):
        text = partial_words(partial)
        lines.append(_command("error", text, {"title": "partial report"}))
    if len(lines) > MOST:
        text = f"{len(lines) - MOST + 1} further differences; the report has all"
        lines = [*lines[: MOST - 1], _command("error", text, {"title": "more differences"})]
    waived = sum(one["verdict"] == "waived" for case in report["cases"] for one in case["channels"].values())
    if waived:
        lines.append(_command("warning", f"{waived} channels pass by waivers; the report has reasons", {}))
    return "".join(f"{line}\n" for line in (*lines, *_warnings(report)))


def _warnings(report: Record) -> Iterator[str]:
    """Yields a warning for each source line of a first difference in passing cases; the last one counts the rest."""
    groups: dict[tuple[str, int], list[str]] = {}
    for case in report["cases"]:
        if first := first_difference(case):
            place = next(
                (one for one in places(finding_of(first)) if not Path(one[0]).is_absolute()), ("", 0)
            )
            groups.setdefault(place, []).append(f"{case['id']}: {sentence(first)}")
    for place, texts in list(groups.items())[: MOST - 1]:
        yield _grouped("warning", texts, *place, "parity: first difference")
    if len(groups) >= MOST:
        text = f"{len(groups) - MOST + 1} further first differences; the report has all"
        yield _command("warning", text, {"title": "more first differences"})


def _errors(case: Record) -> Iterator[tuple[tuple[str, int], str, str]]:
    """Yields place, title and text of a failed case: those of its cause."""
    if found := explanation(case):
        texts = [] if found.cause is None else [found.cause]
        texts += [finding_of(one) for one in case["channels"].get("program", {}).get("findings", ())[:1]]
        known = [place for one in texts for place in places(one) if not Path(place[0]).is_absolute()]
        yield (*known, ("", 0))[0], f"parity: {found.channel} {case['verdict']}", found.line


def _grouped(kind: str, texts: Sequence[str], file: str, line: int, title: str) -> str:
    """Returns the command for the texts at one place: the first, and the number of the others."""
    more = f" (and {len(texts) - 1} more cases)" if len(texts) > 1 else ""
    place = {"file": file, "line": str(line)} if file else {}
    return _command(kind, texts[0] + more, place | {"title": title})


def _command(kind: str, message: str, properties: dict[str, str]) -> str:
    pairs = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind}{' ' if pairs else ''}{pairs}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
