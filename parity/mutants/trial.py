"""Tries mutants: patches a copy of the packages, and runs the command line or a test in a separate process."""

import concurrent.futures
import dataclasses
import enum
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from parity.compare.backends.workers import Pool, WorkerError
from parity.mutants.mutant import Mutant, MutantError, import_root, plant
from parity.mutants.processes import RUN
from parity.report.reading import read_report
from parity.run.record import PASSED
from parity.verdicts import BLOCKING

WITHOUT = shutil.ignore_patterns("__pycache__")
REPORT = "report.json"
ENDED_BY_A_TEST = 1


class Status(enum.StrEnum):
    """``survived`` and ``alarm`` (a benign edit that did not pass) are defects; ``broken`` could not be tried."""

    SURVIVED = "survived"
    ALARM = "alarm"
    BROKEN = "broken"
    KILLED = "killed"
    PASSED = "passed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of one mutant.

    Args:
        by: the channels that blocked, or ``oracle``.
        missed: channels that were expected to block and did not.
        unnamed: expected words that the output lacks.
        why: the sentence of the run; for a mutant that could not be tried, the reason.
    """

    id: str
    status: Status
    by: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    why: str = ""
    seconds: float = 0.0

    @property
    def as_expected(self) -> bool:
        """True if killed by all expected channels with all expected words, or benign and passed."""
        return self.status in (Status.KILLED, Status.PASSED) and not self.missed and not self.unnamed


def try_mutants(
    mutants: Sequence[Mutant],
    root: Path,
    *,
    workers: int = 1,
    limit: float = 600.0,
) -> Generator[Outcome, None, None]:
    """Yields the outcome of each mutant, as soon as it is known.

    Args:
        root: root of the project that they patch.
        workers: number of mutants that are tried at once.
        limit: seconds that each may take.
    """
    pool = Pool(workers, seconds=limit)
    with concurrent.futures.ThreadPoolExecutor(workers) as threads:
        tries = [threads.submit(_try_mutant, one, root, pool) for one in mutants]
        try:
            for done in concurrent.futures.as_completed(tries):
                yield done.result()
        finally:
            for one in tries:
                one.cancel()
            pool.close()


def _try_mutant(mutant: Mutant, root: Path, pool: Pool) -> Outcome:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parity-mutant-") as name:
        folder = Path(name)

        def run(words: list[str]) -> tuple[int, str]:
            path = dict.fromkeys(folder / import_root(root, edit.file) for edit in mutant.edits)
            return pool.submit(RUN, words, folder, [*path, root]).result()

        try:
            _copy(mutant, root, folder)
            plant(mutant, folder)
            outcome = (_by_test if mutant.oracle else _by_case)(mutant, root, folder, run)
        except (MutantError, WorkerError) as error:
            outcome: dict[str, Any] = {"status": Status.BROKEN, "why": str(error)}
    return Outcome(id=mutant.id, seconds=time.monotonic() - begun, **outcome)


Run = Callable[[list[str]], tuple[int, str]]


def _copy(mutant: Mutant, root: Path, folder: Path) -> None:
    """Copies the files that a patch affects: whole packages, and the folders of files outside any package."""
    for edit in mutant.edits:
        home, file = import_root(root, edit.file), Path(edit.file)
        part = home / file.relative_to(home).parts[0] if file.parent != home else home
        if not (root / part).is_dir():
            raise MutantError(f"mutant {mutant.id}: no folder {part} in {root}; edits name files from there")
        if not (folder / part).exists():
            shutil.copytree(root / part, folder / part, ignore=WITHOUT)
    if (root / "pyproject.toml").exists() and not mutant.pairs:
        shutil.copy(root / "pyproject.toml", folder)


def _by_test(mutant: Mutant, root: Path, folder: Path, run: Run) -> dict[str, Any]:
    target = str(root / mutant.oracle)
    alone = ("-p", "no:cacheprovider", "--import-mode=importlib")  # else the project's own folder comes first
    code, printed = run(["pytest", "-q", "-x", *alone, f"--rootdir={root}", target])
    last = printed.strip().splitlines()[-1] if printed.strip() else ""
    if code not in (0, ENDED_BY_A_TEST):
        raise MutantError(f"pytest ended with {code}: {last}")
    if not code:
        return {"status": Status.SURVIVED, "why": f"{mutant.oracle} passes: {last}"}
    return {"status": Status.KILLED, "by": ("oracle",), "unnamed": _unnamed(mutant, printed), "why": last}


def _by_case(mutant: Mutant, root: Path, folder: Path, run: Run) -> dict[str, Any]:
    settings = [word for name, value in mutant.settings.items() for word in ("--set", f"{name}={value}")]
    settings += [word for pair in mutant.pairs for word in ("--pair", pair)]
    code, printed = run(["parity", "run", mutant.case, *settings, "--workers", "1", "--json", REPORT])
    report = folder / REPORT
    if code > 1 or not report.exists():
        raise MutantError(f"parity ended with {code}: {printed.strip()[-300:]}")
    cases = read_report(report).cases
    if len(cases) != 1:
        ids = ", ".join(case.id for case in cases[:3])
        raise MutantError(f"{mutant.case} selects {len(cases)} cases: {ids}; expected one")
    channels, verdict = cases[0].channels, cases[0].verdict
    by = tuple(name for name, channel in channels.items() if channel.verdict in BLOCKING)
    found = (f"{name}: {finding.difference()}" for name in by for finding in channels[name].findings)
    why = next(found, f"the case is {verdict}")
    if mutant.benign and verdict == PASSED:
        proof = channels["program"].verdict if "program" in channels else ""
        return {"status": Status.PASSED, "by": by, "why": f"program {proof}"}
    if mutant.benign:
        return {"status": Status.ALARM, "by": by, "why": why}
    if not code:
        return {"status": Status.SURVIVED, "missed": mutant.channels, "why": why}
    missed = tuple(name for name in mutant.channels if name not in by)
    other = () if verdict == mutant.verdict else (f"verdict {mutant.verdict}, which is {verdict}",)
    return {
        "status": Status.KILLED,
        "by": by,
        "missed": missed + other,
        "unnamed": _unnamed(mutant, printed),
        "why": why,
    }


def _unnamed(mutant: Mutant, printed: str) -> tuple[str, ...]:
    return tuple(word for word in mutant.words if word not in printed)
