"""Forms of a report: one file per form besides JSON, a registry, and the writing of all that are requested.

A form is a function of a report, and of earlier ones for comparison; it returns a text.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from parity.report.formats.annotations import annotations
from parity.report.formats.html import html
from parity.report.formats.junit import junit
from parity.report.formats.markdown import markdown
from parity.report.records import write_json, write_text
from parity.run.record import Report

__all__ = ["FORMS", "write_forms"]

FORMS: Mapping[str, Callable[[Report, Sequence[Report]], str]] = {
    "html": html,
    "junit": junit,
    "markdown": markdown,
    "annotations": annotations,
}
JSON = "json"


def write_forms(report: Report, files: Mapping[str, Path], earlier: Sequence[Report] = ()) -> list[str]:
    """Writes the forms and returns the errors, as sentences; an error in one form does not affect the others."""
    problems = []
    for name, path in files.items():
        try:
            if name == JSON:
                write_json(report, path)
            else:
                write_text(FORMS[name](report, earlier), path)
        except OSError as error:
            problems.append(str(error))
    return problems
