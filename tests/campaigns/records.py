"""Two records of the same cases compared in all but times, for a change of the engine that must have no effect.

``python tests/campaigns records BEFORE AFTER`` prints all differences; exit code 1 if there are any.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parity.report.reading import read_report
from parity.verdicts import plain

Record = Mapping[str, Any]
VOLATILE = frozenset({"seconds", "remembered", "traceback"})
"""Keys at any depth of a record that differ from run to run."""
LISTS = ("findings", "notes")
"""Fields of a channel whose entries are compared individually, in any order."""
INSTALLED = re.compile(r"[^\s'\"]*/site-packages/")
"""Prefix of installed packages, which differs between checkouts."""
LONGEST = 200


def differences(before: Record, after: Record) -> list[str]:
    """Returns each difference as one sentence; empty if both records have the same results.

    Args:
        before, after: reports as plain data.
    """
    one, other = ({case["id"]: _lasting(case) for case in report["cases"]} for report in (before, after))
    found: list[str] = []
    for id in dict.fromkeys((*one, *other)):
        if id not in one or id not in other:
            found.append(f"{id}: only in the {'second' if id in other else 'first'} record")
        else:
            found += _fields(id, one[id], other[id])
    return found


def _lasting(value: Any) -> Any:
    """Returns plain data without volatile keys and installation folders."""
    if isinstance(value, str):
        return INSTALLED.sub("site-packages/", value)
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in VOLATILE}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def _fields(where: str, one: Record, other: Record) -> Iterator[str]:
    for name in dict.fromkeys((*one, *other)):
        left, right = one.get(name), other.get(name)
        if left == right:
            continue
        if name == "channels" and isinstance(left, dict) and isinstance(right, dict):
            for channel in dict.fromkeys((*left, *right)):
                yield from _fields(f"{where} {channel}", left.get(channel, {}), right.get(channel, {}))
        elif name in LISTS:
            yield from _entries(f"{where} {name}", list(left or ()), list(right or ()))
        else:
            yield f"{where} {name}: {_short(left)} -> {_short(right)}"


def _entries(where: str, left: list[Any], right: list[Any]) -> Iterator[str]:
    for entries, others, record in ((left, right, "first"), (right, left, "second")):
        rest = list(others)
        for entry in entries:
            if entry in rest:
                rest.remove(entry)
            else:
                yield f"{where}: only in the {record} record: {_short(entry)}"
    if sorted(map(_short, left)) == sorted(map(_short, right)):
        yield f"{where}: in another order"


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def main() -> int | str:
    """Prints the differences of two reports, and returns the exit code."""
    if len(sys.argv) != 3:
        return "usage: python tests/campaigns records BEFORE AFTER"
    before, after = (plain(read_report(Path(name))) for name in sys.argv[1:])
    if not (before["cases"] or after["cases"]):
        return "no cases in either record; nothing was compared"
    found = differences(before, after)
    print(*found, sep="\n", end="\n" if found else "")
    counts = f"{len(before['cases'])} and {len(after['cases'])} cases"
    print(f"{counts}: {len(found) or 'no'} difference{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
