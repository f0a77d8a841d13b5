"""Searches over commits or versions: one command runs one case at each place, until the first failure is known."""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from parity.bisect.axis import Signature, Status
from parity.compare.origin.result import SearchResult
from parity.run.explain import blocking
from parity.run.record import Bisect
from parity.verdicts import ChannelResult

REPORT = "{report}"
SHORT = 12
"""Number of digits of a commit that are printed."""
SECONDS = 3_600
"""Time limit of a check; no check of one case should take longer."""
ENGINE = str(Path(__file__).parents[2])
"""The folder from which a check imports the running engine."""
Lay = Callable[[str], contextlib.AbstractContextManager[tuple[Path, Sequence[str]]]]
"""Prepares a place by its name: gives the working directory, and the folders to put on the import path."""


@dataclasses.dataclass(frozen=True)
class PlaceResult:
    """The result of one place; ``why`` it could not be tested, in one line."""

    status: Status
    _: dataclasses.KW_ONLY
    why: str = ""
    signature: Signature | None = None

    def __str__(self) -> str:
        return f"cannot be tested: {self.why}" if self.status is Status.OTHER else str(self.status)


class UntestableError(ValueError):
    """A place cannot be prepared."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A command that is repeated at many places; ``{report}`` is the file that it writes."""

    words: tuple[str, ...]
    case: str


class History:
    """The results of places; the first failure becomes the one that counts at all of them."""

    def __init__(self, kind: str, check: Check, lay: Lay, notify: Callable[[str], None]):
        self._kind, self._check, self._lay, self._notify = kind, check, lay, notify
        self._log: dict[str, PlaceResult] = {}

    def test(self, name: str) -> PlaceResult:
        """Returns the result of a place, which is checked unless it is known."""
        if name not in self._log:
            self._log[name] = self._tried(name)
        return self._log[name]

    def _tried(self, name: str) -> PlaceResult:
        self._notify(f"{self._kind} {name[:SHORT]}")
        try:
            with self._lay(name) as (where, path), tempfile.TemporaryDirectory() as folder:
                return self._run(where, path, Path(folder, "report.json"))
        except UntestableError as error:
            return PlaceResult(Status.OTHER, why=str(error))

    def _run(self, where: Path, path: Sequence[str], report: Path) -> PlaceResult:
        """Runs the command in a folder and returns its result; without a report the place cannot be tested."""
        words = [word.replace(REPORT, str(report)) for word in self._check.words]
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
            return PlaceResult(Status.OTHER, why=f"no answer after {SECONDS} s")
        if not report.exists():
            return PlaceResult(Status.OTHER, why=_last_words(ended))
        return result_of(json.loads(report.read_text()), self._check.case, self._signature)

    @property
    def _signature(self) -> Signature | None:
        return next((result.signature for result in self._log.values() if result.signature), None)

    def search(self, low: str, high: str, between: Callable[[Sequence[str], str], Sequence[str]]) -> Bisect:
        """Bisects from a place to a later one of another status; skips places that cannot be tested.

        Both ends of the result are checked again: it is ambiguous if one has another status than before.

        Args:
            low, high: the ends, one of which passes and one fails.
            between: returns the places after all of the given ones up to the given last one, in order.
        """
        first, last = self.test(low).status, self.test(high).status
        lows, skipped = [low], set()
        while True:
            names = between(lows, high)
            rest = [at for at, name in enumerate(names[:-1]) if name not in skipped]
            if not rest:
                break
            name = names[min(rest, key=lambda at: abs(2 * at + 2 - len(names)))]
            status = self.test(name).status
            if status is first:
                lows.append(name)
            elif status is last:
                high = name
            else:
                skipped.add(name)
        again = [self._tried(end).status is self.test(end).status for end in (lows[-1], high)]
        return self._found(names, "passes" if last is Status.PASSES else "fails", ambiguous=not all(again))

    def _found(self, names: Sequence[str], does: str, *, ambiguous: bool) -> Bisect:
        """Returns the result: several places may be the culprit if those between could not be tested."""
        some = ", ".join(name[:SHORT] for name in names)
        words = f"the first {self._kind} that {does} is {some}"
        if ambiguous:
            words = f"ambiguous: {some} sometimes fails and sometimes passes: the check is not deterministic"
        elif len(names) > 1:
            words = f"the first {self._kind} that {does} is one of {some}; those between could not be tested"
        tested = sum(result.status is not Status.OTHER for result in self._log.values())
        log = [(name, str(result)) for name, result in self._log.items()]
        result = SearchResult(
            axis=self._kind,
            found=not ambiguous,
            sentence=f"{words} ({tested} tested)",
            head=(self._kind, "result"),
            rows=tuple((name[:SHORT], text) for name, text in log),
            facts={"first": list(names), "does": does, "tested": tested, "log": log},
        )
        return Bisect(
            case=self._check.case,
            signature=self._signature,
            ambiguous=ambiguous,
            sentence=f"{self._check.case}: {self._signature}: {result.sentence}",
            axes=(result,),
        )


def result_of(report: Mapping[str, Any], case: str, signature: Signature | None) -> PlaceResult:
    """Returns the result of a case in a report; ``signature`` is the failure that counts, by default the worst one."""
    record = next((each for each in report.get("cases", ()) if each["id"] == case), None)
    if record is None:
        return PlaceResult(Status.OTHER, why=f"its report has no case {case}")
    plain = {name: {**each, "name": name} for name, each in record["channels"].items()}
    results = msgspec.convert(plain, dict[str, ChannelResult])
    worst = next(iter(blocking(results.values())), None)
    if worst is None:
        return PlaceResult(Status.PASSES)
    signature = signature or Signature.seen(worst)
    status = signature.status(results)
    why = f"it fails otherwise: {Signature.seen(worst)}" if status is Status.OTHER else ""
    return PlaceResult(status, why=why, signature=signature if status is Status.FAILS else None)


def _last_words(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the line with the reason why a command ended: its last exception, else its last line."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return (raised or lines or [f"exit code {ended.returncode}"])[-1]
