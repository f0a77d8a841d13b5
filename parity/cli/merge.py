"""``parity merge``: the report of a run from those of its parts."""

from pathlib import Path
from typing import Annotated

import typer

from parity.cli.ending import finish
from parity.cli.options import Annotations, Html, Junit, Markdown, Since, asked_forms, console

__all__ = ["merge"]


def merge(
    files: Annotated[list[Path], typer.Argument(help="The reports of all parts, in any order.")],
    json: Annotated[Path, typer.Option("--json", help="Write the report of the whole run to this file.")],
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
    annotations: Annotations = None,
    since: Since = None,
) -> None:
    """Join the reports of `parity run --shard`; judge them as one run."""
    from parity.report import print_table
    from parity.report.reading import read_report
    from parity.report.restored import restore
    from parity.report.shards import merge
    from parity.report.writing import check_forms, write_forms

    forms = asked_forms(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    check_forms(forms)
    if len(set(files)) < len(files):
        raise ValueError("merge: got a file twice, expected each part once")
    whole = merge({str(path): read_report(path) for path in files})
    record = restore(whole)
    record.unwritten += write_forms(whole, forms, [read_report(path) for path in since or ()])
    print_table(console(), record)
    finish(record, forms)
