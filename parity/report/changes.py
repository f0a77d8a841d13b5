"""Two reports compared: changes of verdicts."""

from parity.run.record import CaseResult, Report
from parity.verdicts import BLOCKING, ChannelResult, Verdict, implies


def changes(earlier: Report, later: Report) -> list[tuple[str, bool]]:
    """Returns each change as a sentence, and True if it is worse; those that now block first, then worse verdicts."""
    before, after = ({case.id: case for case in report.cases} for report in (earlier, later))
    found: list[tuple[str, str, str]] = []
    for id in dict.fromkeys((*before, *after)):
        old, new = before.get(id), after.get(id)
        if old and new:
            for name in dict.fromkeys((*old.channels, *new.channels)):
                was, now = (_verdict(one.channels.get(name)) for one in (old, new))
                found.append((f"{id} {name}", was, now))
        else:
            found.append((id, _verdict(old), _verdict(new)))
    changed = [(where, was, now) for where, was, now in found if was != now]
    ordered = sorted(changed, key=lambda one: (one[2] not in BLOCKING, not is_worse(*one[1:])))
    return [(_sentence(*one), is_worse(*one[1:])) for one in ordered]


def _verdict(one: CaseResult | ChannelResult | None) -> str:
    return one.verdict if one else ""


def is_worse(was: str, now: str) -> bool:
    """True if the later verdict does not imply the earlier one, or is missing; a new one is not worse."""
    return bool(was) and not (now and implies(Verdict(now), Verdict(was)))


def _sentence(where: str, was: str, now: str) -> str:
    if not was:
        return f"{where}: new, {now}"
    if not now:
        return f"{where}: gone, was {was}"
    other = is_worse(was, now) and is_worse(now, was)
    word = "neither includes the other" if other else "worse" if is_worse(was, now) else "better"
    return f"{where}: {was} -> {now}, {word}"
