"""GitHub annotations: workflow commands, one per line, that appear at the source lines of a pull request."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from parity.run.explain import places
from parity.run.record import Report
from parity.verdicts import Finding

MOST = 10
"""Maximum number of errors that GitHub shows per step; the last one here gives the number of those left out."""


def annotations(report: Report, earlier: Sequence[Report]) -> str:
    """Returns workflow commands, the worst first: errors, then warnings for waived and unproved cases.

    Findings of several cases at one source line become one annotation.
    """
    groups: dict[tuple[str, int, str], list[str]] = {}
    for case in report.cases:
        if found := case.explanation:
            program = case.channels.get("program")
            named = ([found.cause] if found.cause else []) + [*(program.findings[:1] if program else ())]
            title = f"parity: {found.channel} {case.verdict}"
            groups.setdefault((*_place(*named), title), []).append(f"{case.id}: {found.line}")
    lines = [_grouped("error", texts, *place) for place, texts in groups.items()]
    lines += [_command("error", block, {"title": "flip held back"}) for block in report.blocks]
    if report.partial:
        lines.append(_command("error", report.partial.sentence(), {"title": "partial report"}))
    if len(lines) > MOST:
        text = f"{len(lines) - MOST + 1} further differences; the report has all"
        lines = [*lines[: MOST - 1], _command("error", text, {"title": "more differences"})]
    waived = sum(one.verdict == "waived" for case in report.cases for one in case.channels.values())
    if waived:
        lines.append(_command("warning", f"{waived} channels pass by waivers; the report has reasons", {}))
    lines += [_command("warning", words, {"title": "guessed weight map"}) for words in report.assumptions]
    return "".join(f"{line}\n" for line in (*lines, *_warnings(report)))


def _warnings(report: Report) -> Iterator[str]:
    """Yields a warning for each source line of a first difference in passing cases; the last one counts the rest."""
    groups: dict[tuple[str, int], list[str]] = {}
    for case in report.cases:
        if first := case.first_difference:
            groups.setdefault(_place(first), []).append(f"{case.id}: {first.sentence()}")
    for place, texts in list(groups.items())[: MOST - 1]:
        yield _grouped("warning", texts, *place, "parity: first difference")
    if len(groups) >= MOST:
        text = f"{len(groups) - MOST + 1} further first differences; the report has all"
        yield _command("warning", text, {"title": "more first differences"})


def _place(*findings: Finding) -> tuple[str, int]:
    """Returns the first source line of the project that findings name; none if they name none."""
    found = (place for one in findings for place in places(one))
    return next((place for place in found if not Path(place[0]).is_absolute()), ("", 0))


def _grouped(kind: str, texts: Sequence[str], file: str, line: int, title: str) -> str:
    """Returns the command for the texts at one place: the first, and the number of the others."""
    more = f" (and {len(texts) - 1} more cases)" if len(texts) > 1 else ""
    place = {"file": file, "line": str(line)} if file else {}
    return _command(kind, texts[0] + more, place | {"title": title})


def _command(kind: str, message: str, properties: dict[str, str]) -> str:
    pairs = ",".join(
        f"{name}={_data(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in properties.items()
    )
    return f"::{kind}{' ' if pairs else ''}{pairs}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
