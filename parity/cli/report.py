"""``parity report``: a record in other forms."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.ending import say_reports, show
from parity.cli.options import (
    DIFFERENCE,
    HARNESS,
    INTERRUPTED,
    PARITY,
    Annotations,
    Html,
    Json,
    Junit,
    Markdown,
    Since,
    asked_forms,
    console,
)

__all__ = ["report"]


def report(
    files: Annotated[
        list[Path], typer.Argument(help="A report, as --json writes it; or those of all parts of a run.")
    ],
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
    annotations: Annotations = None,
    json: Json = None,
    since: Since = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            help="An earlier report: print all that differs but times; exit 1 if anything does.",
        ),
    ] = None,
) -> None:
    """Print a report again, write it in other forms, join the parts of a run; show what changed since another."""
    from parity.report.changes import changes
    from parity.report.formats.form import headline, passes
    from parity.report.reading import read_report
    from parity.report.shards import merge
    from parity.report.writing import check_forms, write_forms

    forms = asked_forms(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    if compare:
        if forms or since or len(files) > 1:
            raise ValueError("--compare: got other options or files too, expected one report; leave them out")
        raise typer.Exit(_compare(compare, files[0]))
    check_forms(forms)
    if len(set(files)) < len(files):
        raise ValueError("report: got a file twice, expected each part once")
    reports = {str(path): read_report(path) for path in files}
    found, earlier = next(iter(reports.values())), [read_report(path) for path in since or ()]
    if len(files) > 1 or (json and "shard" in found):
        show(merge(reports), forms, earlier)
    if not forms and not since:
        show(found, {}, ())
    unwritten = write_forms(found, forms, earlier)
    say_reports(forms, unwritten)
    console().print(f"{headline(found)}: {'passes' if passes(found) else 'does not pass'}", soft_wrap=True)
    for change in changes(earlier[-1], found) if earlier else ():
        style = "bold red" if change.worse else ""
        console().print(change.sentence(), style=style, soft_wrap=True, markup=False, highlight=False)
    if unwritten:
        raise typer.Exit(HARNESS)
    if "partial" in found and "why" not in found["partial"]:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(PARITY if passes(found) else DIFFERENCE)


def _compare(before: Path, after: Path) -> int:
    """Prints the differences of two reports, and returns the exit code."""
    from parity.report.differences import differences
    from parity.report.reading import read_report

    reports = read_report(before), read_report(after)
    if not any(report["cases"] for report in reports):
        raise ValueError(f"--compare: {before} and {after} have no cases; nothing was compared")
    found = differences(*reports)
    for sentence in found:
        console().print(sentence, soft_wrap=True, markup=False, highlight=False)
    counts = " and ".join(str(len(report["cases"])) for report in reports)
    words = f"{len(found) or 'no'} difference{'' if len(found) == 1 else 's'}"
    console().print(f"{counts} cases: {words}", soft_wrap=True, highlight=False)
    return DIFFERENCE if found else PARITY
