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
    file: Annotated[Path, typer.Argument(help="A report, as --json writes it.")],
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
    annotations: Annotations = None,
    json: Json = None,
    since: Since = None,
) -> None:
    """Turn a report into other forms; without one, print it again, and what changed since another."""
    from parity.report.changes import changes
    from parity.report.formats.form import headline, passes
    from parity.report.reading import read_report
    from parity.report.writing import check_forms, write_forms

    files = asked_forms(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    if not files and not since:
        show(file, {}, ())
    check_forms(files)
    found, earlier = read_report(file), [read_report(path) for path in since or ()]
    unwritten = write_forms(found, files, earlier)
    say_reports(files, unwritten)
    console().print(f"{headline(found)}: {'passes' if passes(found) else 'does not pass'}", soft_wrap=True)
    for change in changes(earlier[-1], found) if earlier else ():
        style = "bold red" if change.worse else ""
        console().print(change.sentence(), style=style, soft_wrap=True, markup=False, highlight=False)
    if unwritten:
        raise typer.Exit(HARNESS)
    if "partial" in found and "why" not in found["partial"]:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(PARITY if passes(found) else DIFFERENCE)
