"""Interface of the axes: a question about a failure, a search, and its result as a sentence and a table."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from parity.bisect.signature import Signature, Status
from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.run.run import CaseResult, run_case

__all__ = ["Judge", "Question", "Search", "SearchResult", "signature_of"]


def signature_of(result: CaseResult, channel: str = "") -> Signature | None:
    """Returns the signature of a case's worst failure; None if nothing fails.

    Args:
        result: result of the case.
        channel: the channel in question; the worst by default.
    """
    worst = next((each for each in result.blocking if not channel or each.name == channel), None)
    return Signature.seen(worst) if worst else None


class Judge:
    """Decides whether other cases fail in the same way.

    Args:
        signature: the failure.
        bench: the session that cases share; a new one by default.
    """

    def __init__(self, signature: Signature, bench: Session | None = None):
        self.signature, self._bench = signature, bench or Session()
        self.runs = 0

    def evaluate_case(self, case: Case) -> Status:
        """Returns the result of a case on the signature's channel.

        Args:
            case: the case to run.
        """
        return self._once(case, self._bench)

    def ask_twice(self, case: Case) -> Status:
        """Returns the result of a case; ``ambiguous`` if a second run without shared caches disagrees."""
        first = self.evaluate_case(case)
        return first if self._once(case, self._bench.renewed()) is first else Status.AMBIGUOUS

    def _once(self, case: Case, bench: Session) -> Status:
        self.runs += 1
        return self.signature.status(run_case(case, bench, (self.signature.channel,)).channels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A failure, and the context of the search for its cause.

    Args:
        case: the case that fails.
        signature: the failure.
        bench: the session that cases share.
        remade: makes the case under some of the given settings; None if there are none.
        given: these settings.
        notify: called with the next attempt, as text.
    """

    case: Case
    signature: Signature
    bench: Session
    remade: Callable[[Mapping[str, str]], Case] | None = None
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notify: Callable[[str], None] = lambda words: None

    def work(self, case: Case | None = None) -> Evidence:
        """Returns the sides of the case, or of another one that is made from it."""
        return Evidence.of(case or self.case, self.bench)

    def judge(self) -> Judge:
        """Returns the judge of other cases."""
        return Judge(self.signature, self.bench)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a search.

    Args:
        axis: name of the search.
        sentence: the result as text.
        found: True if the search names a culprit; if not, the sentence gives the reason.
        head, rows: a short table, or nothing.
        facts: the result for tools.
    """

    axis: str
    sentence: str
    found: bool = True
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """A search for the cause of a failure.

    Args:
        name: as on the command line.
        about: description in one line.
        look: returns the result.
    """

    name: str
    about: str
    look: Callable[[Question], SearchResult]
