"""Results as plain data, in the versioned JSON schema."""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from parity.compare.backends.cache import replace_file
from parity.run.run import CaseResult, Run, numbers_only
from parity.verdicts import ChannelResult, Finding

__all__ = [
    "SCHEMA",
    "VERDICTS",
    "Record",
    "ReportNotWrittenError",
    "as_json",
    "case_record",
    "channel_record",
    "check_writable",
    "counted",
    "counts_text",
    "distinct",
    "is_stream",
    "partial_words",
    "phase_seconds",
    "report",
    "write_json",
    "write_text",
]

Record = Mapping[str, Any]
"""A report, or one case of it, in the form of the schema."""
SCHEMA = 1
VERDICTS = ("passed", "failed", "vacuous", "error", "open", "unproved", "skipped")


class ReportNotWrittenError(OSError):
    """A report could not be written; an existing file is unchanged."""


def _finding(finding: Finding) -> dict[str, Any]:
    fields = dataclasses.asdict(dataclasses.replace(finding, follows=()))
    del fields["follows"]
    follows = [_finding(one) for one in finding.follows]
    return {**fields, **({"follows": follows} if follows else {})}


def channel_record(channel: ChannelResult) -> dict[str, Any]:
    """Returns the result of one channel in the form of the schema."""
    return {
        "verdict": str(channel.verdict),
        "detail": channel.detail,
        "findings": [_finding(finding) for finding in channel.findings],
        **({"notes": [_finding(note) for note in channel.notes]} if channel.notes else {}),
        **({"measures": dict(channel.measures)} if channel.measures else {}),
        **({"tables": dict(channel.tables)} if channel.tables else {}),
    }


def case_record(result: CaseResult) -> dict[str, Any]:
    """Returns one case in the form of the schema."""
    return {
        "id": result.case.id,
        "reference": result.reference,
        "candidate": result.candidate,
        "program": result.case.program,
        "mesh": str(result.case.mesh),
        **({"candidate_mesh": str(result.case.candidate_mesh)} if result.case.candidate_mesh else {}),
        **({"asked": result.case.placement.requested_mesh} if result.case.placement.requested_mesh else {}),
        "backend": result.case.placement.backend,
        "verdict": str(result.verdict),
        **({"numbers_only": True} if numbers_only(result) else {}),
        **({"remembered": True} if result.cached else {}),
        "channels": {name: channel_record(channel) for name, channel in result.channels.items()},
        "seconds": {name: round(seconds, 4) for name, seconds in result.seconds.items()},
    }


def counted(verdicts: Iterable[str]) -> dict[str, int]:
    """Returns the number of cases with each verdict."""
    held = list(verdicts)
    return {verdict: held.count(verdict) for verdict in VERDICTS}


def distinct(waivers: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """Returns the records of waivers, each once and sorted."""
    return [dict(fields) for fields in sorted({tuple(sorted(fields.items())) for fields in waivers})]


def as_json(run: Run) -> dict[str, Any]:
    """Returns the report of a run."""
    records = [
        case_record(result)
        | ({"bisect": run.followed[result.case.id]} if result.case.id in run.followed else {})
        for result in run.results
    ]
    whole = report(records, run.environment, run.planned, run.seconds)
    if run.stopped and run.partial:
        whole["partial"]["why"] = run.stopped
    if waivers := distinct(one.fields() for result in run.results for one in result.case.accept.waivers):
        whole["waivers"] = waivers
    if run.unvaried:
        whole["unvaried"] = run.unvaried
    if run.shard:
        whole["shard"] = run.shard.record()
    return whole


def report(
    records: Sequence[dict[str, Any]], environment: dict[str, object], planned: int, seconds: float
) -> dict[str, Any]:
    """Returns a report in the form of the schema; a partial one has the numbers of planned and finished cases."""
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "environment": environment,
        "cases": list(records),
        "summary": counted(record["verdict"] for record in records),
        "numbers_only": sum(record.get("numbers_only", False) for record in records),
        "seconds": round(seconds, 3),
    }
    if len(records) < planned:
        whole["partial"] = {"planned": planned, "finished": len(records)}
    return whole


def counts_text(report: Record) -> str:
    """Returns text such as ``5 passed, 1 failed``."""
    counts = [f"{report['summary'].get(name)} {name}" for name in VERDICTS if report["summary"].get(name)]
    return ", ".join(counts) or "nothing ran"


def phase_seconds(report: Record) -> dict[str, float]:
    """Returns the seconds of all cases by phase."""
    phases = dict.fromkeys(name for case in report["cases"] for name in case["seconds"])
    return {name: sum(case["seconds"].get(name, 0.0) for case in report["cases"]) for name in phases}


def partial_words(partial: Record) -> str:
    """Returns the number of finished cases of a partial report, and the reason, as text."""
    why = partial.get("why", "the run was interrupted")
    return f"{partial['finished']} of {partial['planned']} cases finished before {why}"


def check_writable(path: Path, option: str = "--json") -> None:
    """Checks, before any work, that a report can be written; follows a link.

    Raises:
        ValueError: the folder is missing or not writable, or the path is a folder.
    """
    folder, problem = (path.resolve() if path.is_symlink() else path).parent, ""
    if path.is_dir():
        problem = "is a folder"
    elif not folder.is_dir():
        problem = f"folder {folder} does not exist"
    elif path.exists() and not os.access(path, os.W_OK):
        problem = "is not writable"
    else:
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            problem = f"cannot make a file in {folder} ({error.strerror})"
    if not problem:
        return
    raise ValueError(
        f"report path {path}: {problem}; expected a writable file name; choose another with {option}"
    )


def is_stream(path: Path) -> bool:
    """True for a path that is written to directly, such as /dev/stdout or a pipe, because it cannot be replaced."""
    return path.is_char_device() or path.is_fifo() or _stream_at(path) is not None


def _stream_at(path: Path) -> TextIO | None:
    """Returns standard output or error if a path refers to the same file, pipe or socket; else None."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return stream
    return None


def write_json(report: dict[str, Any], path: Path) -> None:
    """Writes a report; see `write_text`."""
    write_text(json.dumps(report, indent=1) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Writes a report at once, so that no partial one is ever visible.

    Raises:
        ReportNotWrittenError: for example, the disk is full or the folder is not writable.
    """
    try:
        if stream := _stream_at(path):
            stream.write(text)
            stream.flush()
        elif is_stream(path):
            path.write_text(text, encoding="utf-8")
        else:
            replace_file(path.resolve(), text.encode())
    except OSError as error:
        why = error.strerror or str(error)
        raise ReportNotWrittenError(
            f"report path {path}: could not be written ({why}); what was there before is untouched; "
            "make room or choose another file, and run again"
        ) from error
