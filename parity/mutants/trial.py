"""One mutant tried: a copy of what it patches, and the command line, or a test, in a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.mutants.mutant import Mutant, MutantError, plant
from parity.mutants.outcome import Outcome, Status
from parity.verdicts import BLOCKING

__all__ = ["Processes", "try_mutant"]

WITHOUT = shutil.ignore_patterns("__pycache__")
REPORT = "report.json"
ENDED_BY_A_TEST = 1


class Processes:
    """The processes at work; `end` ends them all, with their children."""

    def __init__(self):
        self._running: set[subprocess.Popen[str]] = set()
        self._over = False

    def run(
        self, command: list[str], folder: Path, environment: dict[str, str], limit: float
    ) -> tuple[int, str]:
        """Returns the exit code, and what was printed.

        Raises:
            TimeoutError: it took longer than ``limit`` seconds.
            InterruptedError: all were ended meanwhile.
        """
        if self._over:
            raise InterruptedError
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._running.add(process)
        try:
            printed, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise TimeoutError(f"took over {limit:.0f} s") from error
        finally:
            self._running.discard(process)
        if self._over:
            raise InterruptedError
        return process.returncode, printed

    def end(self) -> None:
        """Ends what runs; nothing starts any more."""
        self._over = True
        for process in tuple(self._running):
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def try_mutant(mutant: Mutant, root: Path, content: str, processes: Processes, limit: float) -> Outcome:
    """Returns what became of a mutant.

    Args:
        mutant: to be tried.
        root: of the project that it patches.
        content: kept with the outcome.
        processes: where its process is counted.
        limit: seconds that it may take.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parity-mutant-") as name:
        folder = Path(name)
        try:
            _copy(mutant, root, folder)
            plant(mutant, folder)
            judge = _by_test if mutant.oracle else _by_case
            outcome = judge(
                mutant, root, folder, lambda command: _run(command, root, folder, processes, limit)
            )
        except (MutantError, TimeoutError) as error:
            outcome: dict[str, Any] = {"status": Status.BROKEN, "why": str(error)}
    return Outcome(id=mutant.id, content=content, seconds=time.monotonic() - begun, **outcome)


Run = Callable[[list[str]], tuple[int, str]]


def _run(command: list[str], root: Path, folder: Path, processes: Processes, limit: float) -> tuple[int, str]:
    path = os.pathsep.join(filter(None, (str(folder), str(root), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    return processes.run([sys.executable, "-P", "-m", *command], folder, environment, limit)


def _copy(mutant: Mutant, root: Path, folder: Path) -> None:
    for package in mutant.packages:
        if not (root / package).is_dir():
            raise MutantError(
                f"mutant {mutant.id}: no folder {package} in {root}; edits name files from there"
            )
        shutil.copytree(root / package, folder / package, ignore=WITHOUT)
    if (root / "pyproject.toml").exists():
        shutil.copy(root / "pyproject.toml", folder)


def _by_test(mutant: Mutant, root: Path, folder: Path, run: Run) -> dict[str, Any]:
    target = str(root / mutant.oracle)
    alone = ("-p", "no:cacheprovider", "--import-mode=importlib")  # else the project's own folder comes first
    code, printed = run(["pytest", "-q", "-x", *alone, f"--rootdir={root}", target])
    last = printed.strip().splitlines()[-1] if printed.strip() else ""
    if code not in (0, ENDED_BY_A_TEST):
        return {"status": Status.BROKEN, "why": f"pytest ended with {code}: {last}"}
    if not code:
        return {"status": Status.SURVIVED, "why": f"{mutant.oracle} passes: {last}"}
    return {"status": Status.KILLED, "by": ("oracle",), "unnamed": _unnamed(mutant, printed), "why": last}


def _by_case(mutant: Mutant, root: Path, folder: Path, run: Run) -> dict[str, Any]:
    settings = [word for name, value in mutant.settings.items() for word in ("--set", f"{name}={value}")]
    code, printed = run(["parity", "run", mutant.case, *settings, "--workers", "1", "--json", REPORT])
    report = folder / REPORT
    if code > 1 or not report.exists():
        return {"status": Status.BROKEN, "why": f"parity ended with {code}: {printed.strip()[-300:]}"}
    cases = json.loads(report.read_text())["cases"]
    if len(cases) != 1:
        ids = ", ".join(case["id"] for case in cases[:3])
        return {
            "status": Status.BROKEN,
            "why": f"{mutant.case} selects {len(cases)} cases: {ids}; expected one",
        }
    by = tuple(name for name, channel in cases[0]["channels"].items() if channel["verdict"] in set(BLOCKING))
    verdict, why = cases[0]["verdict"], _sentence(cases[0], by)
    if mutant.benign:
        return {"status": Status.PASSED if verdict == "passed" else Status.ALARM, "by": by, "why": why}
    if not code:
        return {"status": Status.SURVIVED, "missed": mutant.channels, "why": why or f"the case is {verdict}"}
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


def _sentence(case: dict, by: tuple[str, ...]) -> str:
    for name in by:
        for finding in case["channels"][name]["findings"]:
            sides = (f"{side} {finding[side]}" for side in ("reference", "candidate") if finding.get(side))
            return f"{name}: {finding['where']}: {', '.join(sides)}"
    return ""
