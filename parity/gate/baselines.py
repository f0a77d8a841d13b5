"""Baselines: accepted verdicts, one small file per case; a lower verdict blocks a flip."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from parity.cases.tables import Table, read
from parity.report.changes import is_worse
from parity.report.records import write_json
from parity.run.record import PASSED, CaseResult, Report
from parity.verdicts import Verdict


def _file(folder: Path, case: str) -> Path:
    return folder / f"{re.sub(r'[^A-Za-z0-9.@_-]', '~', case)}.json"


def accept(folder: Path, report: Report) -> list[str]:
    """Writes the verdicts of the cases that pass, and returns their ids; other files are unchanged."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"baselines {folder}: {error.strerror}, expected a folder; correct [tool.parity.gate] baselines"
        ) from error
    passed = [case for case in report.cases if case.verdict == PASSED]
    for case in passed:
        channels = case.channels.items()
        verdicts = {name: one.verdict for name, one in channels if one.verdict is not Verdict.SKIPPED}
        write_json({"id": case.id, "channels": verdicts}, _file(folder, case.id))
    return [case.id for case in passed]


def fallen(folder: Path, cases: Sequence[CaseResult]) -> dict[str, list[str]]:
    """Returns, by case, the channels whose verdict is lower than the accepted one, as sentences."""
    found: dict[str, list[str]] = {}
    for case in cases:
        path = _file(folder, case.id)
        if not path.is_file():
            continue
        accepted = _read(path)
        words = [
            f"{name} fell from {was} to {now or 'missing'}; fix it, or accept it with `parity gate --accept`"
            for name, was in accepted.items()
            if is_worse(was, now := case.channels[name].verdict if name in case.channels else "")
        ]
        if words:
            found[case.id] = words
    return found


class _Baseline(Table, frozen=True):
    channels: dict[str, Verdict]
    id: str = ""


def _read(path: Path) -> dict[str, Verdict]:
    try:
        return read(_Baseline, json.loads(path.read_text(encoding="utf-8"))).channels
    except (OSError, ValueError) as error:
        raise ValueError(
            f"baseline {path}: {error}, expected a file of `parity gate --accept`; accept the case again"
        ) from error
