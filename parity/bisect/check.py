"""The check that a search over commits or versions repeats: one command, one case, one failure; and its log."""

import contextlib
import dataclasses
import enum
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parity.bisect.signature import Signature, Status
from parity.verdicts import BLOCKING, ChannelResult, Finding

__all__ = ["REPORT", "Check", "CheckResult", "Found", "Log", "Outcome", "answer_of", "engine"]

REPORT = "{report}"
"""Placeholder for the file that the command writes its report to."""
SECONDS = 3_600
"""Time limit of a check; no check of one case should take longer."""
SEVERITY = ("failed", "error", "vacuous", "open")


class Outcome(enum.StrEnum):
    """Kinds of results of a search."""

    CULPRIT = "culprit"
    SEVERAL = "several"
    AMBIGUOUS = "ambiguous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a search.

    Args:
        outcome: one culprit, several candidates, or no certain one.
        culprits: the culprit, or all candidates.
        signature: the failure.
        log: the result of each place, ``{"name", "answer", "why"?}``, in the order of the checks.
        mended: True if the culprit is the first that passes.
    """

    outcome: Outcome
    culprits: tuple[str, ...]
    signature: Signature
    log: tuple[Mapping[str, str], ...]
    mended: bool = False

    @property
    def evaluated(self) -> int:
        """The number of places that pass or fail; those that could not be tested do not count."""
        return len({entry["name"] for entry in self.log if entry["answer"] in (Status.PASSES, Status.FAILS)})


class CheckResult(NamedTuple):
    """The result of one place.

    Args:
        status: result of the case there.
        signature: its failure.
        why: the reason why it could not be tested, in one line.
    """

    status: Status
    signature: Signature | None = None
    why: str = ""

    def __str__(self) -> str:
        return f"{self.status} ({self.why})" if self.why else str(self.status)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A check that is repeated in many places.

    Args:
        words: words of the command; ``{report}`` is the file that it writes.
        case: id of the case in the report.
        signature: the failure that counts; None for the worst one.
    """

    words: tuple[str, ...]
    case: str
    signature: Signature | None = None

    def evaluate_case(self, where: Path, report: Path, path: Sequence[str]) -> CheckResult:
        """Runs the command and returns its result; without a report the place cannot be tested.

        Args:
            where: the working directory.
            report: file for the report.
            path: folders on the import path, before the engine's.
        """
        report.unlink(missing_ok=True)
        words = [word.replace(REPORT, str(report)) for word in self.words]
        variables = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([*path, *engine()]),
        }
        try:
            ended = subprocess.run(
                words, cwd=where, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return CheckResult(Status.OTHER, why=f"no answer after {SECONDS} s")
        if not report.exists():
            return CheckResult(Status.OTHER, why=_last_words(ended))
        found = answer_of(json.loads(report.read_text()), self.case, self.signature)
        report.unlink()
        return found

    def write(self, file: Path) -> None:
        """Writes the check to a file, atomically."""
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(dataclasses.asdict(self)))
        partial.replace(file)

    @classmethod
    def read(cls, file: Path) -> "Check":
        """Returns the check that `write` wrote."""
        record = json.loads(file.read_text())
        signature = Signature.read(record["signature"]) if record["signature"] else None
        return cls(words=tuple(record["words"]), case=record["case"], signature=signature)


@dataclasses.dataclass(frozen=True)
class Log:
    """The results of all places on disk; a search that was killed reads them and continues.

    Args:
        folder: folder of the search.
    """

    folder: Path

    @property
    def _file(self) -> Path:
        return self.folder / "log.jsonl"

    def entries(self) -> list[dict[str, str]]:
        """Returns all entries; an incomplete last line is ignored."""
        found = []
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def status(self, name: str) -> Status | None:
        """Returns the answer of a place; None if it was not checked."""
        return next((Status(each["answer"]) for each in self.entries() if each["name"] == name), None)

    def said(self, name: str) -> str:
        """Returns the result of a place as text."""
        entry = next(each for each in self.entries() if each["name"] == name)
        return str(CheckResult(Status(entry["answer"]), why=entry.get("why", "")))

    def add(self, name: str, result: CheckResult) -> None:
        """Adds the result of a place."""
        entry = {"name": name, "answer": str(result.status)} | ({"why": result.why} if result.why else {})
        with self._file.open("a") as log:
            log.write(f"{json.dumps(entry)}\n")
            log.flush()
            os.fsync(log.fileno())


def answer_of(report: Mapping[str, Any], case: str, signature: Signature | None) -> CheckResult:
    """Returns the answer of a report in the JSON schema for a case, and the signature of its failure.

    Args:
        report: of ``parity run --json``.
        case: its id.
        signature: the failure that counts; None for the worst one.
    """
    record = next((each for each in report.get("cases", ()) if each["id"] == case), None)
    if record is None:
        return CheckResult(Status.OTHER, why=f"its report has no case {case}")
    results = [
        ChannelResult(
            name=name,
            verdict=each["verdict"],
            detail=each["detail"],
            findings=tuple(
                Finding(where=one["where"], reference="", candidate="") for one in each["findings"]
            ),
        )
        for name, each in record["channels"].items()
    ]
    blocking = sorted(
        (each for each in results if each.verdict in BLOCKING), key=lambda each: SEVERITY.index(each.verdict)
    )
    if not blocking:
        return CheckResult(Status.PASSES)
    if signature is None:
        return CheckResult(Status.FAILS, Signature.seen(blocking[0]))
    if any(signature.of(each) for each in blocking):
        return CheckResult(Status.FAILS, signature)
    own = next((each for each in results if each.name == signature.channel), None)
    if own is not None and own not in blocking:
        return CheckResult(Status.PASSES)
    return CheckResult(Status.OTHER, why=f"it fails otherwise: {Signature.seen(blocking[0])}")


def _last_words(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the line with the reason why a command ended: its last exception, else its last line."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return (raised or lines or [f"exit code {ended.returncode}"])[-1]


def engine() -> list[str]:
    """Returns the folders from which a child process imports the running engine."""
    return [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
