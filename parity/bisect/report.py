"""The searches for the cause of a failure, in order, and the record of their results."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.bisect.axis import Question, SearchResult, Signature, Status, signature_of
from parity.bisect.config import search_settings
from parity.bisect.module import search_modules
from parity.bisect.size import search_sizes
from parity.bisect.weight import search_weights
from parity.builds.weights.map import MapError
from parity.cases.case import Case
from parity.compare.clock import SideError
from parity.compare.origin.operation import locate
from parity.compare.session import Session
from parity.run.explain import explain, places
from parity.run.run import CaseResult, run_case

__all__ = ["AXES", "SCHEMA", "Report", "bisect_case", "unknown_axis"]


def search_operations(question: Question) -> SearchResult:
    """Evaluates both programs and names the first operation that is beyond the floor."""
    question.notify("op: both programs, operation by operation")
    return locate(question.case, question.bench, question.signature.channel)


AXES: Mapping[str, Callable[[Question], SearchResult]] = {
    "op": search_operations,
    "module": search_modules,
    "weight": search_weights,
    "config": search_settings,
    "size": search_sizes,
}
"""The searches by name, in their order."""
OF_VALUES = ("op", "module")
"""The searches that follow values, which the others only shrink or switch off."""
SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a bisect.

    Args:
        case: id of the case.
        result: result of the case.
        signature: the failure; None if nothing fails.
        ambiguous: True if two runs of the case disagree, so that no search started.
        findings: findings of the searches, in order.
    """

    case: str
    result: CaseResult
    signature: Signature | None
    ambiguous: bool = False
    findings: tuple[SearchResult, ...] = ()

    def sentence(self) -> str:
        """Returns the result in one sentence."""
        if self.signature is None:
            return f"{self.case}: nothing fails: nothing to bisect"
        if self.ambiguous:
            return (
                f"{self.case}: ambiguous: {self.signature} in one run and not in the next; "
                "the check is not deterministic, so it names no culprit"
            )
        if not self.findings:
            return f"{self.case}: {self.signature}"
        first = next((each for each in self.findings if each.found or each.facts.get("doubt")), None)
        found = first.sentence if first else "no search names a culprit"
        if first is None or first.axis not in OF_VALUES:
            found = self._declared() or found
        return f"{self.case}: {self.signature}: {found}"

    def _declared(self) -> str:
        """Returns the finding behind the failure if it names source lines, such as those that make a leaf."""
        found = explain(self.case, self.result.channels)
        return found.cause.sentence() if found and found.cause and places(found.cause) else ""

    def record(self) -> dict[str, Any]:
        """Returns the report as plain data."""
        return {
            "schema": SCHEMA,
            "case": self.case,
            "signature": dataclasses.asdict(self.signature) if self.signature else None,
            "ambiguous": self.ambiguous,
            "sentence": self.sentence(),
            "axes": [_plain(dataclasses.asdict(finding)) for finding in self.findings],
        }


def _plain(value: Any) -> Any:
    """Returns plain JSON data: infinities as text, because JSON has none."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def unknown_axis(name: str) -> ValueError:
    """Returns the error for an unknown axis."""
    return ValueError(f"--search {name!r}: expected one of {', '.join((*AXES, 'commit', 'version', 'none'))}")


def bisect_case(
    case: Case,
    axes: Sequence[str] = tuple(AXES),
    *,
    result: CaseResult | None = None,
    bench: Session | None = None,
    notify: Callable[[str], None] = lambda words: None,
    **more: Any,
) -> Report:
    """Returns the results of some searches for the cause of a case's failure.

    Args:
        case: the failing case.
        axes: their names.
        result: result of a run of the case; None to run it.
        bench: a session with the options of that run; one with the default options if None.
        notify: called with the next attempt, as text.
        **more: other fields of `Question`.

    Raises:
        ValueError: an unknown axis.
    """
    for name in axes:
        if name not in AXES:
            raise unknown_axis(name)
    bench = bench or Session()
    notify("the case itself")
    result = result or run_case(case, bench)
    signature = signature_of(result)
    if signature is None:
        return Report(case=case.id, result=result, signature=None)
    notify("the case itself, again")
    question = Question(case=case, signature=signature, bench=bench, notify=notify, **more)
    if question.status(case, fresh=True) is not Status.FAILS:
        return Report(case=case.id, result=result, signature=signature, ambiguous=True)
    findings = tuple(_search(name, question) for name in axes)
    return Report(case=case.id, result=result, signature=signature, findings=findings)


def _search(name: str, question: Question) -> SearchResult:
    """Returns the result of one search; an error of a side ends only this search."""
    try:
        return AXES[name](question)
    except (MapError, SideError) as error:
        return SearchResult.nothing(name, f"cannot be asked: {str(error).splitlines()[0]}")
