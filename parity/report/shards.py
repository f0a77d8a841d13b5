"""Merges the reports of the parts of a run."""

from collections.abc import Mapping
from typing import Any

from parity.report import records
from parity.run.request import Shard

__all__ = ["merge"]

SAME = ("python", "packages", "flags", "devices", "commit", "settings")
"""Keys of the environment that must be equal in all parts; else their verdicts belong to different runs."""
DROPPED = frozenset({"shard", "partial", "waivers", "gate"})
"""Keys of a part that the whole report does not copy."""


def merge(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the report of a whole run from those of its parts, in any order.

    Times are added up over all machines.

    Args:
        reports: by name, such as the file name.

    Raises:
        ValueError: a report is not a part, a part is missing or duplicate, or the parts are of different runs.
    """
    parts = _parts(reports)
    names = [name for _, name in sorted((shard.number, name) for name, shard in parts.items())]
    first, *rest = names
    for name in rest:
        _same_run(first, reports[first], name, reports[name])
    cases = sorted(
        (
            (place, case)
            for name in names
            for place, case in zip(parts[name].places, reports[name]["cases"], strict=True)
        ),
        key=lambda one: one[0],
    )
    ids = [case["id"] for _, case in cases]
    if len(set(ids)) < len(ids) or len({place for place, _ in cases}) < len(cases):
        twice = sorted({one for one in ids if ids.count(one) > 1}) or "two cases at one place"
        raise ValueError(
            f"report: got {twice} in several parts, expected each case once; run the parts again"
        )
    seconds = sum(reports[name]["seconds"] for name in names)
    kept = {key: value for key, value in reports[first].items() if key not in DROPPED}
    whole = kept | records.report(
        [case for _, case in cases], kept["environment"], parts[first].total, seconds
    )
    if waivers := records.distinct(one for name in names for one in reports[name].get("waivers", ())):
        whole["waivers"] = waivers
    return whole


def _parts(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Shard]:
    """Returns the shard of each report.

    Raises:
        ValueError: they are not all parts of one run.
    """
    parts: dict[str, Shard] = {}
    for name, report in reports.items():
        found = report.get("shard")
        if not isinstance(found, Mapping):
            raise ValueError(
                f"report {name}: got a whole run, expected a part; make parts with --shard 1/2, ..."
            )
        shard = Shard(found["number"], found["of"], tuple(found["places"]), found["total"])
        if len(shard.places) != len(report["cases"]):
            raise ValueError(
                f"report {name}: got {len(report['cases'])} cases at {len(shard.places)} places, "
                "expected a report as --shard writes it; run the part again"
            )
        twin = next((other for other, known in parts.items() if known.number == shard.number), None)
        if twin:
            raise ValueError(
                f"report {name}: got part {shard.number} again, after {twin}; name each part once"
            )
        parts[name] = shard
    if not parts:
        raise ValueError("report: got no report, expected those of all parts")
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


def _same_run(name: str, one: Mapping[str, Any], other_name: str, other: Mapping[str, Any]) -> None:
    pairs = [(key, one["environment"].get(key), other["environment"].get(key)) for key in SAME]
    pairs += [
        ("backends", *(sorted({case["backend"] for case in report["cases"]}) for report in (one, other)))
    ]
    for key, left, right in pairs:
        if left != right and not (key == "backends" and [] in (left, right)):
            raise ValueError(
                f"report {other_name}: got {key} {right}, expected {left} as in {name}; run all parts alike"
            )
