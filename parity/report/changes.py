"""Two reports compared: changes of verdicts."""

import dataclasses
from collections.abc import Mapping

from parity.report.reading import Record
from parity.verdicts import BLOCKING, Verdict, implies

__all__ = ["changes"]


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
