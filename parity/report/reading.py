"""Reads a report back: checked where it comes in, so that what renders it need not doubt it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.report.records import SCHEMA, VERDICTS
from parity.verdicts import Verdict

__all__ = ["Record", "ReportFileError", "check_report", "read_report"]

Record = Mapping[str, Any]
"""A report, or one case of it, in the form of the schema."""

CASE = {
    "id": str,
    "program": str,
    "mesh": str,
    "backend": str,
    "verdict": str,
    "channels": dict,
    "seconds": dict,
}
WHOLE = {"environment": dict, "cases": list, "summary": dict, "seconds": (int, float)}
AXIS = {"axis": str, "sentence": str, "found": bool, "head": list, "rows": list, "facts": dict}
FINDING = ("where", "reference", "candidate")


class ReportFileError(ValueError):
    """A file is no report that can be used."""


def read_report(path: Path) -> Record:
    """Returns the report of a file.

    Args:
        path: as ``--json`` wrote it.

    Raises:
        ReportFileError: it cannot be read, is no JSON, or no report of this schema.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
        raise ReportFileError(f"report {path}: {why}; expected a file that --json wrote") from error
    except ValueError as error:
        raise ReportFileError(
            f"report {path}: no JSON ({error}); expected a file that --json wrote"
        ) from error
    check_report(found, f"report {path}")
    return found


def check_report(found: Any, name: str) -> None:
    """Raises unless something has the form of a report.

    Args:
        found: what was read.
        name: what to call it.

    Raises:
        ReportFileError: the first thing that is wrong: where, what it is, what was expected.
    """
    if not isinstance(found, dict) or "schema" not in found:
        raise ReportFileError(
            f"{name}: got no key schema, expected a report as `parity run --json` writes it"
        )
    if found["schema"] != SCHEMA:
        raise ReportFileError(
            f"{name}: got schema {found['schema']!r}, expected {SCHEMA}; read it with the version that wrote it"
        )
    _fields(found, WHOLE, name)
    ids: set[str] = set()
    for number, case in enumerate(found["cases"], 1):
        where = f"{name}, case {number}"
        if not isinstance(case, dict):
            raise ReportFileError(f"{where}: got {case!r}, expected an object")
        _fields(case, CASE, where)
        if case["verdict"] not in VERDICTS:
            raise ReportFileError(f"{where}: got verdict {case['verdict']!r}, expected {', '.join(VERDICTS)}")
        if case["id"] in ids:
            raise ReportFileError(f"{where}: got id {case['id']} a second time, expected each case once")
        ids.add(case["id"])
        _bisect(case.get("bisect", {"sentence": "", "axes": []}), f"{where} ({case['id']}), bisect")
        for channel, result in case["channels"].items():
            _channel(result, f"{where} ({case['id']}), channel {channel}")


def _channel(result: Any, name: str) -> None:
    if not isinstance(result, dict) or result.get("verdict") not in tuple(Verdict):
        raise ReportFileError(
            f"{name}: got {str(result)[:80]}, expected one with a verdict of {', '.join(Verdict)}"
        )
    for table, rows in result.get("tables", {}).items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ReportFileError(f"{name}, table {table}: got {str(rows)[:80]}, expected a list of objects")
    for finding in (*result.get("findings", ()), *result.get("notes", ())):
        if not isinstance(finding, dict) or not all(isinstance(finding.get(key), str) for key in FINDING):
            raise ReportFileError(f"{name}: got {str(finding)[:80]}, expected texts {', '.join(FINDING)}")


def _bisect(found: Any, name: str) -> None:
    axes = found.get("axes") if isinstance(found, dict) else None
    if not isinstance(axes, list) or not isinstance(found.get("sentence"), str):
        raise ReportFileError(f"{name}: got {str(found)[:80]}, expected what `parity bisect --json` writes")
    for number, axis in enumerate(axes, 1):
        if not isinstance(axis, dict):
            raise ReportFileError(f"{name}, axis {number}: got {str(axis)[:80]}, expected an object")
        _fields(axis, AXIS, f"{name}, axis {number}")


def _fields(found: Mapping[str, Any], expected: Mapping[str, Any], name: str) -> None:
    for key, kind in expected.items():
        if not isinstance(found.get(key), kind):
            names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
            raise ReportFileError(f"{name}: got {key} = {str(found.get(key))[:60]!r}, expected {names}")
