"""``parity report``: a record in other forms."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console, echo


def command(
    files: Annotated[
        list[Path], typer.Argument(help="A report that --json wrote, or the reports of all parts of a run.")
    ],
    html: options.Html = None,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    annotations: options.Annotations = None,
    json: options.Json = None,
    since: options.Since = None,
) -> None:
    """Print, convert or join reports. Several files are joined as the parts of one run."""
    from parity.cli.terminal import end_reports, finish, read_earlier, say_changes
    from parity.report.formats import write_forms
    from parity.report.reading import merge, read_report
    from parity.report.table import print_table

    forms = checked_files(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    if len(set(files)) < len(files):
        raise ValueError("report: a file is named twice; name each part once")
    reports = {str(path): read_report(path) for path in files}
    found, earlier = next(iter(reports.values())), read_earlier(since)
    joined = len(files) > 1 or bool(json and found.shard)
    found = merge(reports) if joined else found
    unwritten = write_forms(found, forms, earlier)
    if joined or not (forms or since):
        print_table(console(), found)
        finish(found, forms, unwritten)
    echo(f"{found.headline()}: {'passes' if found.passes else 'does not pass'}")
    say_changes(earlier, found)
    end_reports(forms, unwritten, found)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(PARITY if found.passes else DIFFERENCE)
