"""The axis ``config``: a minimal set of settings with the failure; without any one of them it disappears."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from parity.bisect.axis import Question, Status
from parity.cases.case import Case
from parity.compare.origin.result import SearchResult

Settings = Mapping[str, str]
Kept = Sequence[Settings]
T = TypeVar("T")


def search_settings(question: Question) -> SearchResult:
    """Removes settings, or switches off parts of the model, until the remaining ones are all needed for the failure."""
    whole, remade = question.case, question.remade
    if question.given and remade:
        parts = [{name: text} for name, text in question.given.items()]
        return _search(question, parts, lambda kept: remade(_merged(kept)), given=True)
    parts = list(whole.explore.ablations)
    if whole.explore.with_settings is None or not parts:
        return SearchResult.nothing(
            "config",
            "the case has no settings to change: give some with --set, or `with_settings` and `ablations`",
        )

    def make(kept: Kept) -> Case:
        """Returns the case with all parts switched off except the given ones."""
        off = [each for each in parts if each not in kept]
        return whole.varied(_merged(off)) if off else whole

    return _search(question, parts, make, given=False)


def _merged(parts: Kept) -> dict[str, str]:
    return {name: text for part in parts for name, text in part.items()}


def _search(
    question: Question, parts: Sequence[Settings], make: Callable[[Kept], Case], *, given: bool
) -> SearchResult:
    statuses: dict[tuple[int, ...], Status] = {}

    def status(kept: Kept) -> Status:
        key = tuple(number for number, part in enumerate(parts) if part in kept)
        if key not in statuses:
            question.notify(f"config: {len(key)} of {len(parts)} settings kept, run {len(statuses) + 1}")
            statuses[key] = question.status_of(lambda: make(kept))
        return statuses[key]

    if status(parts) is not Status.FAILS:
        return SearchResult.nothing("config", "the case no longer fails alike: nothing to narrow down")
    needed = minimal_part(parts, lambda kept: status(kept) is Status.FAILS)
    rows = tuple(
        (_words(part), str(status([other for other in needed if other is not part]))) for part in needed
    )
    if question.is_ambiguous(make(needed)):
        return SearchResult.nothing(
            "config", "ambiguous: the smallest configuration fails and passes by turns"
        )
    words = " and ".join(_words(part) for part in needed)
    if not needed:
        sentence = f"fails under the plainest configuration too: none of {len(parts)} settings is needed"
    elif given:
        sentence = f"fails only while {words} is set"
    elif len(needed) > 1:
        sentence = f"passes with {words} on both sides, one of them alone is enough"
    else:
        sentence = f"passes with {words} on both sides and fails without: look at what acts on that setting"
    return SearchResult(
        axis="config",
        sentence=f"{sentence} ({len(statuses)} tried)",
        head=("setting", "the case without it"),
        rows=rows,
        facts={"needed": [dict(part) for part in needed], "tried": len(statuses), "set": given},
    )


def minimal_part(whole: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns a 1-minimal failing part of ``whole``: without any one of its elements it does not fail.

    An inconclusive part does not fail.
    """
    if fails([]):
        return []
    part, before = list(whole), []
    while part != before:
        before = part
        for each in before:
            rest = [other for other in part if other is not each]
            part = rest if fails(rest) else part
    return part


def _words(part: Settings) -> str:
    return " and ".join(f"{name}={text}" for name, text in part.items())
