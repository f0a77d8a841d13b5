"""Tries one mutant: patches a copy, and runs the command line or a test in a separate process."""

import functools
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.mutants.mutant import Mutant, MutantError, import_root, plant
from parity.mutants.outcome import Outcome, Status
from parity.mutants.processes import Command, Processes
from parity.verdicts import BLOCKING

__all__ = ["try_mutant"]

WITHOUT = shutil.ignore_patterns("__pycache__")
REPORT = "report.json"
ENDED_BY_A_TEST = 1
ENGINE = "parity"
"""The package that the fork server has imported: a mutant of it needs a separate process."""


def try_mutant(mutant: Mutant, root: Path, content: str, processes: Processes, limit: float) -> Outcome:
    """Returns the outcome of a mutant.

    Args:
        mutant: to be tried.
        root: root of the project that it patches.
        content: digest to store with the outcome.
        processes: run its process.
        limit: seconds that it may take.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parity-mutant-") as name:
        folder = Path(name)
        try:
            _copy(mutant, root, folder)
            plant(mutant, folder)
            judge = _by_test if mutant.oracle else _by_case
            run = functools.partial(_run, mutant, root, folder, processes, limit)
            outcome = judge(mutant, root, folder, run)
        except (MutantError, TimeoutError) as error:
            outcome: dict[str, Any] = {"status": Status.BROKEN, "why": str(error)}
    return Outcome(id=mutant.id, content=content, seconds=time.monotonic() - begun, **outcome)


Run = Callable[[list[str]], tuple[int, str]]


def _run(
    mutant: Mutant, root: Path, folder: Path, processes: Processes, limit: float, words: list[str]
) -> tuple[int, str]:
    found = dict.fromkeys(folder / import_root(root, edit.file) for edit in mutant.edits)
    warm = words[0] == "parity" and ENGINE not in mutant.packages
    path, edited = [*found, root], mutant.packages
    return processes.run(
        Command(words=words, folder=folder, path=path, limit=limit, warm=warm, edited=edited)
    )


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
        return {"status": Status.BROKEN, "why": f"pytest ended with {code}: {last}"}
    if not code:
        return {"status": Status.SURVIVED, "why": f"{mutant.oracle} passes: {last}"}
    return {"status": Status.KILLED, "by": ("oracle",), "unnamed": _unnamed(mutant, printed), "why": last}


def _by_case(mutant: Mutant, root: Path, folder: Path, run: Run) -> dict[str, Any]:
    settings = [word for name, value in mutant.settings.items() for word in ("--set", f"{name}={value}")]
    settings += [word for pair in mutant.pairs for word in ("--pair", pair)]
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
    floors = _floors(cases[0], failed=not mutant.benign)
    if mutant.benign:
        passed, proof = verdict == "passed", cases[0]["channels"].get("program", {}).get("verdict", "")
        status = Status.PASSED if passed else Status.ALARM
        return {
            "status": status,
            "by": by,
            "floors": floors,
            "why": f"program {proof}" if passed else why or f"the case is {verdict}",
        }
    if not code:
        return {"status": Status.SURVIVED, "missed": mutant.channels, "why": why or f"the case is {verdict}"}
    missed = tuple(name for name in mutant.channels if name not in by)
    other = () if verdict == mutant.verdict else (f"verdict {mutant.verdict}, which is {verdict}",)
    return {
        "status": Status.KILLED,
        "by": by,
        "missed": missed + other,
        "unnamed": _unnamed(mutant, printed),
        "floors": floors,
        "why": why,
    }


def _floors(case: dict, *, failed: bool) -> float | None:
    """Returns the largest deviation in units of noise; if ``failed``, only of leaves that failed."""
    rows = [
        row for channel in case["channels"].values() for row in channel.get("tables", {}).get("leaves", ())
    ]
    ratios = (row["floors"] for row in rows if not failed or row["rung"] == "failed")
    return max((floors for floors in ratios if floors is not None), default=None)


def _unnamed(mutant: Mutant, printed: str) -> tuple[str, ...]:
    return tuple(word for word in mutant.words if word not in printed)


def _sentence(case: dict, by: tuple[str, ...]) -> str:
    for name in by:
        for finding in case["channels"][name]["findings"]:
            sides = (f"{side} {finding[side]}" for side in ("reference", "candidate") if finding.get(side))
            return f"{name}: {finding['where']}: {', '.join(sides)}"
    return ""
