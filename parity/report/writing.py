"""Writes a report in every form that was asked for; what cannot be written takes nothing else down."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.report.formats import FORMS
from parity.report.reading import Record
from parity.report.records import check_writable, is_stream, write_json, write_text

__all__ = ["check_forms", "write_forms"]

JSON = "json"


def check_forms(files: Mapping[str, Path]) -> None:
    """Raises before any work where a form could not be written in the end.

    Args:
        files: file by name of the form.

    Raises:
        ValueError: see `parity.report.records.check_writable`.
    """
    for name, path in files.items():
        if not is_stream(path):
            check_writable(path, f"--{name}")


def write_forms(report: Record, files: Mapping[str, Path], earlier: Sequence[Record] = ()) -> list[str]:
    """Writes the forms and returns, in sentences, what could not be written.

    Args:
        report: as read, or as `parity.report.records.as_json` makes it.
        files: file by name of the form; ``json`` is the record itself.
        earlier: reports before it, the oldest first.
    """
    problems = []
    for name, path in files.items():
        try:
            if name == JSON:
                write_json(dict(report), path)
            else:
                write_text(FORMS[name].render(report, earlier), path)
        except OSError as error:
            problems.append(str(error))
    return problems
