"""Two reports compared: changes of verdicts, for people; all differences but times, for a change without effect."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from parity.report.reading import Record
from parity.verdicts import BLOCKING, Verdict, implies

__all__ = ["Change", "changes", "differences"]

VOLATILE = frozenset({"seconds", "remembered", "traceback"})
"""Keys at any depth of a record that differ from run to run."""
LISTS = ("findings", "notes")
"""Fields of a channel whose entries are compared individually, in any order."""
INSTALLED = re.compile(r"[^\s'\"]*/site-packages/")
"""Prefix of installed packages, which differs between checkouts."""
LONGEST = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One difference between two reports.

    Args:
        case: its id.
        channel: its name; empty for the case as a whole.
        before, after: verdicts; empty if a report lacks the case or channel.
    """

    case: str
    channel: str = ""
    before: str = ""
    after: str = ""

    @property
    def worse(self) -> bool:
        """True if the later verdict does not imply the earlier one, or is missing; a new one is not worse."""
        if not self.before or not self.after:
            return bool(self.before)
        return not implies(Verdict(self.after), Verdict(self.before))

    def sentence(self) -> str:
        """Returns the change as text."""
        where = f"{self.case} {self.channel}".rstrip()
        if not self.before:
            return f"{where}: new, {self.after}"
        if not self.after:
            return f"{where}: gone, was {self.before}"
        other = self.worse and not implies(Verdict(self.before), Verdict(self.after))
        word = "neither includes the other" if other else "worse" if self.worse else "better"
        return f"{where}: {self.before} -> {self.after}, {word}"


def changes(earlier: Record, later: Record) -> list[Change]:
    """Returns the changes: those that now block first, then worse verdicts.

    Args:
        earlier, later: reports, as `read_report` returns them.
    """
    before, after = ({case["id"]: case for case in report["cases"]} for report in (earlier, later))
    found = []
    for case in dict.fromkeys((*before, *after)):
        if case not in before or case not in after:
            old, new = (side[case]["verdict"] if case in side else "" for side in (before, after))
            found.append(Change(case=case, before=old, after=new))
            continue
        found += _channels(case, before[case]["channels"], after[case]["channels"])
    return sorted(found, key=lambda one: (one.after not in BLOCKING, not one.worse))


def _channels(case: str, before: Mapping[str, Record], after: Mapping[str, Record]) -> list[Change]:
    pairs = {
        name: tuple(side[name]["verdict"] if name in side else "" for side in (before, after))
        for name in dict.fromkeys((*before, *after))
    }
    return [
        Change(case=case, channel=name, before=old, after=new)
        for name, (old, new) in pairs.items()
        if old != new
    ]


def differences(before: Record, after: Record) -> list[str]:
    """Returns each difference as one sentence; empty if both records have the same results.

    Args:
        before, after: reports, as `read_report` returns them.
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
