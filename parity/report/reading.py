"""Reads and validates a report, so that the forms can rely on its structure; rebuilds the results that it holds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case, Placement
from parity.cases.tables import read, unknown
from parity.cases.waivers import Waiver
from parity.report.records import SCHEMA, VERDICTS
from parity.run.run import CaseResult, Run
from parity.verdicts import Verdict, channel_of

__all__ = ["Record", "check_report", "read_report", "restore"]

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


def read_report(path: Path) -> Record:
    """Returns the report of a file.

    Args:
        path: a file that ``--json`` wrote.

    Raises:
        ValueError: the file cannot be read, is not JSON, or is not a report of this schema.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(f"report {path}: {why}; expected a file that --json wrote") from error
    except ValueError as error:
        raise ValueError(
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
        ValueError: the first mistake: its place, the value, the expected one.
    """
    if not isinstance(found, dict) or "schema" not in found:
        raise ValueError(f"{name}: got no key schema, expected a report as `parity run --json` writes it")
    if found["schema"] != SCHEMA:
        raise ValueError(
            f"{name}: got schema {found['schema']!r}, expected {SCHEMA}; read it with the version that wrote it"
        )
    ids: set[str] = set()
    for number, case in enumerate(read(_Report, found, name).cases, 1):
        where = f"{name}: cases, number {number}"
        if case.verdict not in VERDICTS:
            raise ValueError(f"{where}.verdict: {unknown(case.verdict, VERDICTS)}")
        if case.id in ids:
            raise ValueError(f"{where}: got id {case.id} a second time, expected each case once")
        ids.add(case.id)


def restore(report: Record) -> Run:
    """Returns the run of a report, to print it like one; its cases cannot be run again.

    Args:
        report: as `read_report` returns it.
    """
    waivers = tuple(Waiver(**fields) for fields in report.get("waivers", ()))
    partial = report.get("partial", {})
    return Run(
        environment=dict(report["environment"]),
        planned=partial.get("planned", len(report["cases"])),
        stopped=partial.get("why", ""),
        results=[_result(case, waivers) for case in report["cases"]],
        seconds=report["seconds"],
        unvaried=report.get("unvaried", {}),
        followed={case["id"]: case["bisect"] for case in report["cases"] if "bisect" in case},
    )


def _result(record: Record, waivers: tuple[Waiver, ...]) -> CaseResult:
    other = record.get("candidate_mesh")
    case = Case(
        id=record["id"],
        reference=_not_built,
        candidate=_not_built,
        program=record["program"],
        mesh=MeshSpec.parse(record["mesh"]),
        candidate_mesh=MeshSpec.parse(other) if other else None,
        placement=Placement(backend=record["backend"], requested_mesh=record.get("asked", "")),
        accept=Accept(waivers=tuple(waiver for waiver in waivers if waiver.concerns(record["id"]))),
    )
    return CaseResult(
        case=case,
        reference=record.get("reference", ""),
        candidate=record.get("candidate", ""),
        verdict=record["verdict"],
        channels={name: channel_of(name, one) for name, one in record["channels"].items()},
        seconds=dict(record["seconds"]),
        cached=record.get("remembered", False),
    )


def _not_built() -> Build:
    raise AssertionError("a case from a report is shown, never run")
