"""What ``parity bench`` measures: cases that were named, else those of ``[tool.parity.bench]``, else all."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from parity.cases.case import Case, select

__all__ = ["Harness", "Subject", "read_harness", "subjects"]

KEYS = ("compare", "harness")
ENTRY = {"name": str, "cases": list, "swap": bool}
HARNESS = {"cases": list, "script": str}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A case to measure.

    Args:
        case: whose sides.
        name: what its ratios say, such as ``NNX over Linen``; empty to take it from the builds.
        swap: the reference over the candidate.
    """

    case: Case
    name: str = ""
    swap: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Harness:
    """What the harness itself is measured on.

    Args:
        cases: selectors.
        script: a Python file that compares the same cases without it; empty for none.
    """

    cases: tuple[str, ...]
    script: str = ""


def subjects(table: Mapping[str, Any], cases: Sequence[Case], selectors: Sequence[str]) -> list[Subject]:
    """Returns what to measure.

    Args:
        table: ``[tool.parity.bench]``.
        cases: all there are.
        selectors: what was named on the command line.

    Raises:
        ValueError: the table has the wrong form, or a selector matches nothing.
    """
    _check("[tool.parity.bench]", table, dict.fromkeys(KEYS, (list, dict)))
    entries = table.get("compare", [])
    if selectors or not entries:
        return [Subject(case=case) for case in select(cases, selectors)]
    found = []
    for entry in entries:
        _check("[[tool.parity.bench.compare]]", entry, ENTRY, needed=("name", "cases"))
        found += [
            Subject(case=case, name=entry["name"], swap=entry.get("swap", False))
            for case in select(cases, entry["cases"])
        ]
    return found


def read_harness(table: Mapping[str, Any]) -> Harness | None:
    """Returns what the harness is measured on; None where the table does not say.

    Args:
        table: ``[tool.parity.bench]``.

    Raises:
        ValueError: it has the wrong form.
    """
    if "harness" not in table:
        return None
    entry = table["harness"]
    _check("[tool.parity.bench.harness]", entry, HARNESS, needed=("cases",))
    return Harness(cases=tuple(entry["cases"]), script=entry.get("script", ""))


def _check(where: str, entry: Any, keys: Mapping[str, Any], needed: Sequence[str] = ()) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: got {entry!r}, expected a table of {', '.join(keys)}")
    wrong = [name for name, value in entry.items() if name not in keys or not isinstance(value, keys[name])]
    missing = [name for name in needed if name not in entry]
    if wrong or missing:
        raise ValueError(
            f"{where}: got {', '.join(f'{name} = {entry[name]!r}' for name in wrong) or 'no ' + missing[0]}, "
            f"expected {', '.join(keys)}; docs/bench.md has an example"
        )
