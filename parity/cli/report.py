"""``parity report``: a record in other forms."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, HARNESS, INTERRUPTED, PARITY, checked_files, console, echo

__all__ = ["report"]


def report(
    files: Annotated[
        list[Path], typer.Argument(help="A report that --json wrote, or the reports of all parts of a run.")
    ],
    html: options.Html = None,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    annotations: options.Annotations = None,
    json: options.Json = None,
    since: options.Since = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            help="Print all differences from an earlier report except times; exit 1 if there are any.",
        ),
    ] = None,
) -> None:
    """Print, convert, join or compare reports. Several files are joined as the parts of one run."""
    from parity.cli.terminal import finish, read_earlier, say_changes, say_reports
    from parity.report import print_table
    from parity.report.formats.form import headline, passes
    from parity.report.reading import read_report
    from parity.report.restored import restore
    from parity.report.shards import merge
    from parity.report.writing import write_forms

    forms = checked_files(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    if compare:
        if forms or since or len(files) > 1:
            raise ValueError("--compare: give one report and no other option; leave the others out")
        raise typer.Exit(_compare(compare, files[0]))
    if len(set(files)) < len(files):
        raise ValueError("report: a file is named twice; name each part once")
    reports = {str(path): read_report(path) for path in files}
    found, earlier = next(iter(reports.values())), read_earlier(since)
    joined = len(files) > 1 or bool(json and "shard" in found)
    if joined or not (forms or since):
        found = merge(reports) if joined else found
        record, unwritten = restore(found), write_forms(found, forms, earlier)
        print_table(console(), record)
        finish(record, forms, unwritten)
    unwritten = write_forms(found, forms, earlier)
    say_reports(forms, unwritten)
    echo(f"{headline(found)}: {'passes' if passes(found) else 'does not pass'}")
    say_changes(earlier, found)
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
        echo(sentence)
    counts = " and ".join(str(len(report["cases"])) for report in reports)
    echo(f"{counts} cases: {len(found) or 'no'} difference{'' if len(found) == 1 else 's'}")
    return DIFFERENCE if found else PARITY
