"""The check that a search over commits or versions repeats at each place: one command, one case, one failure."""

import contextlib
import dataclasses
import enum
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parity.bisect.axis import Signature, Status
from parity.run.explain import blocking
from parity.verdicts import channel_of

__all__ = ["REPORT", "Check", "CheckResult", "Found", "Outcome", "Places", "UntestableError", "answer_of"]

REPORT = "{report}"
"""Placeholder for the file that the command writes its report to."""
SECONDS = 3_600
"""Time limit of a check; no check of one case should take longer."""
ENGINE = str(Path(__file__).parents[2])
"""The folder from which a check imports the running engine."""
Lay = Callable[[str], contextlib.AbstractContextManager[tuple[Path, Sequence[str]]]]
"""Prepares a place by its name: gives the working directory, and the folders to put on the import path."""


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
        fixed: True if the culprit is the first that passes.
    """

    outcome: Outcome
    culprits: tuple[str, ...]
    signature: Signature
    log: tuple[Mapping[str, str], ...]
    fixed: bool = False

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
            "PYTHONPATH": os.pathsep.join(filter(None, [*path, ENGINE, os.environ.get("PYTHONPATH", "")])),
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


class Places:
    """The results of a search's places, also on disk: a search that was killed reads them and continues.

    The first failure becomes the one that counts at all places.

    Args:
        folder: folder of the search.
        check: repeated at each place.
        lay: prepares a place.
        notify: called with the text that names the next place.
    """

    def __init__(self, folder: Path, check: Check, lay: Lay, notify: Callable[[str], None]):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._file, self._lay, self._notify = folder, folder / "log.jsonl", lay, notify
        self._log: list[dict[str, Any]] = []
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):  # an incomplete last line
                self._log.append(json.loads(line))
        known = next((each["signature"] for each in self._log if "signature" in each), None)
        self._check = dataclasses.replace(check, signature=Signature.read(known)) if known else check

    @property
    def signature(self) -> Signature | None:
        """The failure that counts."""
        return self._check.signature

    def __call__(self, name: str) -> Status:
        """Returns the status of a place, which is checked unless it is known."""
        known = self._known(name)
        return Status((known or self._add(name))["answer"])

    def _known(self, name: str) -> dict[str, Any] | None:
        return next((each for each in self._log if each["name"] == name), None)

    def _add(self, name: str) -> dict[str, Any]:
        result = self._ask(name)
        entry: dict[str, Any] = {"name": name, "answer": str(result.status)} | (
            {"why": result.why} if result.why else {}
        )
        if result.signature is not None and self.signature is None:
            entry["signature"] = dataclasses.asdict(result.signature)
            self._check = dataclasses.replace(self._check, signature=result.signature)
        self._log.append(entry)
        with self._file.open("a") as log:
            log.write(f"{json.dumps(entry)}\n")
            log.flush()
            os.fsync(log.fileno())
        return entry

    def _ask(self, name: str) -> CheckResult:
        self._notify(name)
        try:
            with self._lay(name) as (where, path):
                return self._check.evaluate_case(where, self._folder / f"report-{os.getpid()}.json", path)
        except UntestableError as error:
            return CheckResult(Status.OTHER, why=str(error))

    def said(self, name: str) -> str:
        """Returns the result of a place as text."""
        entry = self._known(name) or self._add(name)
        return str(CheckResult(Status(entry["answer"]), why=entry.get("why", "")))

    def found(
        self, outcome: Outcome, culprits: Sequence[str], ends: Sequence[str], fixed: bool = False
    ) -> Found:
        """Checks the ends again and returns the result of the search, whose places on disk it deletes.

        Args:
            outcome: it becomes ambiguous if an end has another status than before.
            culprits: the culprit, or all candidates.
            ends: the last place before the change, and the first after it.
            fixed: True if the culprit is the first that passes.
        """
        known = {name: Status(entry["answer"]) for name in ends if (entry := self._known(name))}
        if any(self._ask(name).status is not status for name, status in known.items()):
            outcome = Outcome.AMBIGUOUS
        assert self.signature is not None
        log = tuple({key: entry[key] for key in entry if key != "signature"} for entry in self._log)
        shutil.rmtree(self._folder)
        with contextlib.suppress(OSError):  # another search may be running
            self._folder.parent.rmdir()
        return Found(
            outcome=outcome, culprits=tuple(culprits), signature=self.signature, log=log, fixed=fixed
        )


class UntestableError(ValueError):
    """A place cannot be prepared."""


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
    results = {name: channel_of(name, each) for name, each in record["channels"].items()}
    worst = next(iter(blocking(results.values())), None)
    if worst is None:
        return CheckResult(Status.PASSES)
    signature = signature or Signature.seen(worst)
    status = signature.status(results)
    why = f"it fails otherwise: {Signature.seen(worst)}" if status is Status.OTHER else ""
    return CheckResult(status, signature if status is Status.FAILS else None, why)


def _last_words(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the line with the reason why a command ended: its last exception, else its last line."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return (raised or lines or [f"exit code {ended.returncode}"])[-1]
