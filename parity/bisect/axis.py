"""An axis: one question about a failure, how it is put to cases, and its answer as a sentence and a table."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from parity.bisect.signature import Answer, Signature
from parity.cases.case import Case
from parity.compare.comparison import Comparison, Session
from parity.run.run import CaseResult, run_case
from parity.verdicts import BLOCKING

__all__ = ["Judge", "Question", "Search", "SearchResult", "signature_of"]


def signature_of(result: CaseResult, channel: str = "") -> Signature | None:
    """Returns the signature of a case's worst failure; None where nothing fails.

    Args:
        result: of the case.
        channel: the channel that is asked about; the worst by default.
    """
    blocking = [each for each in result.blocking if not channel or each.name == channel]
    if not blocking:
        return None
    return Signature.seen(blocking[0])


class Judge:
    """Asks cases whether they fail alike.

    Args:
        signature: the failure.
        bench: where what cases share is kept.
    """

    def __init__(self, signature: Signature, bench: Session | None = None):
        self.signature, self._bench = signature, bench or Session()
        self.asked = 0

    def ask(self, case: Case) -> Answer:
        """Returns whether a case fails alike.

        Args:
            case: to be run on the signature's channel.
        """
        return self._once(case, self._bench)

    def ask_twice(self, case: Case) -> Answer:
        """Returns the same, or ``ambiguous`` where a second run that shares nothing with the first disagrees."""
        first = self.ask(case)
        return first if self._once(case, Session()) is first else Answer.AMBIGUOUS

    def _once(self, case: Case, bench: Session) -> Answer:
        self.asked += 1
        result = run_case(case, bench, (self.signature.channel,))
        found = result.channels.get(self.signature.channel)
        if found is None:
            return Answer.OTHER
        if self.signature.of(found):
            return Answer.FAILS
        return Answer.OTHER if found.verdict in BLOCKING else Answer.PASSES


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

    def work(self, case: Case | None = None) -> Comparison:
        """Returns the sides of the case, or of another one that is made from it."""
        return Comparison(case or self.case, self.bench)

    def judge(self) -> Judge:
        """Returns the judge of whether another case fails alike."""
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
