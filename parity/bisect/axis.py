"""What an axis is: it asks one question about a failure and answers in a sentence and a table."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from parity.bisect.judge import Judge
from parity.bisect.signature import Signature
from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.session import Session

__all__ = ["Question", "Search", "SearchResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A failure to be followed.

    Args:
        case: the case that fails.
        signature: how.
        bench: what cases share.
        remade: makes the case under some of the settings that it was given, where it was given any.
        given: these settings.
        tell: told what is being tried, in words.
    """

    case: Case
    signature: Signature
    bench: Session
    remade: Callable[[Mapping[str, str]], Case] | None = None
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tell: Callable[[str], None] = lambda words: None

    def work(self) -> Evidence:
        """Returns the case at work."""
        return Evidence.of(self.case, self.bench)

    def judge(self) -> Judge:
        """Returns who says whether another case fails alike."""
        return Judge(self.signature, self.bench)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What an axis found.

    Args:
        axis: its name.
        sentence: what a person can act on.
        found: whether the axis names a culprit; otherwise the sentence says why it does not.
        head, rows: a short table; empty where a sentence says all.
        facts: the same for tools.
    """

    axis: str
    sentence: str
    found: bool = True
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """A question about a failure.

    Args:
        name: as the command line spells it.
        about: what it asks, in one line.
        look: answers it.
    """

    name: str
    about: str
    look: Callable[[Question], SearchResult]
