"""Rebuilds results from a report, so that code that prints runs also prints reports."""

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case, Placement
from parity.cases.waivers import Waiver
from parity.report.reading import Record
from parity.run.run import CaseResult, Run
from parity.verdicts import channel_of

__all__ = ["restore"]


def restore(report: Record) -> Run:
    """Returns the run of a report; its cases cannot be run again.

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
