"""Reads and validates reports; joins parts of a run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.cases.tables import read, unknown
from parity.run.record import SCHEMA, VERDICTS, Report, distinct
from parity.run.request import Shard
from parity.verdicts import repeated


def read_report(path: Path) -> Report:
    """Returns the report of a file; ValueError if it cannot be read, or is no report of this schema."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or f"not valid JSON ({error})"
        raise ValueError(f"report {path}: {why}; expected a file that --json wrote") from error
    return parse_report(found, f"report {path}")


def parse_report(found: Any, name: str) -> Report:
    """Returns the report of parsed JSON; ValueError for the first mistake: its place, the value, the expected one."""
    if not isinstance(found, dict) or "schema" not in found:
        raise ValueError(f"{name}: got no key schema, expected a report as `parity run --json` writes it")
    if found["schema"] != SCHEMA:
        raise ValueError(
            f"{name}: got schema {found['schema']!r}, expected {SCHEMA}; read it with the version that wrote it"
        )
    report, ids = read(Report, found, name), set()
    for number, case in enumerate(report.cases, 1):
        where = f"{name}: cases, number {number}"
        if case.verdict not in VERDICTS:
            raise ValueError(f"{where}.verdict: {unknown(case.verdict, VERDICTS)}")
        if case.id in ids:
            raise ValueError(f"{where}: got id {case.id} a second time, expected each case once")
        ids.add(case.id)
    return report


SAME = ("python", "packages", "flags", "devices", "commit", "settings")
"""Keys of the environment that must be equal in all parts; else their verdicts belong to different runs."""


def merge(reports: Mapping[str, Report]) -> Report:
    """Returns the report of a whole run from those of its parts, in any order; times are added up.

    Raises:
        ValueError: a report is not a part, a part is missing or duplicate, or the parts are of different runs.
    """
    parts = _parts(reports)
    first, *rest = names = sorted(parts, key=lambda name: parts[name].number)
    for name in rest:
        _same_run(first, reports[first], name, reports[name])
    found = [pair for name in names for pair in zip(parts[name].places, reports[name].cases, strict=True)]
    cases = [case for _, case in sorted(found, key=lambda pair: pair[0])]
    if twice := sorted(repeated(case.id for case in cases)):
        raise ValueError(
            f"report: got {twice} in several parts, expected each case once; run the parts again"
        )
    return Report.of(
        cases,
        parts[first].total,
        environment=reports[first].environment,
        seconds=round(sum(reports[name].seconds for name in names), 3),
        waivers=distinct(one for name in names for one in reports[name].waivers),
        unvaried=reports[first].unvaried,
    )


def _parts(reports: Mapping[str, Report]) -> dict[str, Shard]:
    """Returns the shard of each report, after checking that they are all parts of one run."""
    parts: dict[str, Shard] = {}
    for name, report in reports.items():
        shard = report.shard
        if shard is None:
            raise ValueError(
                f"report {name}: got a whole run, expected a part; make parts with --shard 1/2, ..."
            )
        twin = next((other for other, known in parts.items() if known.number == shard.number), None)
        if twin:
            raise ValueError(
                f"report {name}: got part {shard.number} again, after {twin}; name each part once"
            )
        parts[name] = shard
    sizes = sorted({(shard.of, shard.total) for shard in parts.values()})
    if len(sizes) > 1:
        words = " and ".join(f"{of} parts of {total} cases" for of, total in sizes)
        raise ValueError(f"report: got reports of {words}, expected those of one run; run all parts again")
    missing = sorted(set(range(1, sizes[0][0] + 1)) - {shard.number for shard in parts.values()})
    if missing:
        raise ValueError(
            f"report: got {len(parts)} of {sizes[0][0]} parts, missing {', '.join(map(str, missing))}; "
            "name their reports too"
        )
    return parts


def _same_run(name: str, one: Report, other_name: str, other: Report) -> None:
    pairs = [(key, one.environment.get(key), other.environment.get(key)) for key in SAME]
    pairs += [("backends", *(sorted({case.backend for case in report.cases}) for report in (one, other)))]
    for key, left, right in pairs:
        if left != right and not (key == "backends" and [] in (left, right)):
            raise ValueError(
                f"report {other_name}: got {key} {right}, expected {left} as in {name}; run all parts alike"
            )
