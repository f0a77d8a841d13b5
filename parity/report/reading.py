"""Reads and validates a report, so that the forms can rely on its structure."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from parity.cases.tables import read, unknown
from parity.report.records import SCHEMA, VERDICTS
from parity.verdicts import Verdict

__all__ = ["Record", "ReportFileError", "check_report", "read_report"]

Record = Mapping[str, Any]
"""A report, or one case of it, in the form of the schema."""


class _Finding(msgspec.Struct, frozen=True):
    where: str
    reference: str
    candidate: str


class _Channel(msgspec.Struct, frozen=True):
    verdict: Verdict
    tables: dict[str, list[dict[str, Any]]] = {}
    findings: tuple[_Finding, ...] = ()
    notes: tuple[_Finding, ...] = ()


class _Axis(msgspec.Struct, frozen=True):
    axis: str
    sentence: str
    found: bool
    head: list[Any]
    rows: list[Any]
    facts: dict[str, Any]


class _Bisect(msgspec.Struct, frozen=True):
    """One result of `parity bisect --json`."""

    sentence: str
    axes: tuple[_Axis, ...]


class _Case(msgspec.Struct, frozen=True):
    id: str
    program: str
    mesh: str
    backend: str
    verdict: str
    channels: dict[str, _Channel]
    seconds: dict[str, Any]
    bisect: _Bisect | msgspec.UnsetType = msgspec.UNSET


class _Report(msgspec.Struct, frozen=True):
    """The keys that readers of a report rely on; other keys are allowed."""

    environment: dict[str, Any]
    cases: tuple[_Case, ...]
    summary: dict[str, Any]
    seconds: float


class ReportFileError(ValueError):
    """A file is not a usable report."""


def read_report(path: Path) -> Record:
    """Returns the report of a file.

    Args:
        path: a file that ``--json`` wrote.

    Raises:
        ReportFileError: the file cannot be read, is not JSON, or is not a report of this schema.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
        raise ReportFileError(f"report {path}: {why}; expected a file that --json wrote") from error
    except ValueError as error:
        raise ReportFileError(
            f"report {path}: not valid JSON ({error}); expected a file that --json wrote"
        ) from error
    check_report(found, f"report {path}")
    return found


def check_report(found: Any, name: str) -> None:
    """Checks that an object has the form of a report.

    Args:
        found: the parsed JSON.
        name: its name in messages.

    Raises:
        ReportFileError: the first mistake: its place, the value, the expected one.
    """
    if not isinstance(found, dict) or "schema" not in found:
        raise ReportFileError(
            f"{name}: got no key schema, expected a report as `parity run --json` writes it"
        )
    if found["schema"] != SCHEMA:
        raise ReportFileError(
            f"{name}: got schema {found['schema']!r}, expected {SCHEMA}; read it with the version that wrote it"
        )
    ids: set[str] = set()
    for number, case in enumerate(read(_Report, found, name, ReportFileError).cases, 1):
        where = f"{name}: cases, number {number}"
        if case.verdict not in VERDICTS:
            raise ReportFileError(f"{where}.verdict: {unknown(case.verdict, VERDICTS)}")
        if case.id in ids:
            raise ReportFileError(f"{where}: got id {case.id} a second time, expected each case once")
        ids.add(case.id)
