"""The searches for the cause of a failure, in order, and the record of their results."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.bisect.axis import Question, Status, signature_of
from parity.bisect.config import search_settings
from parity.bisect.module import search_modules
from parity.bisect.size import search_sizes
from parity.bisect.weight import search_weights
from parity.builds.weights.map import MapError
from parity.cases.case import Case
from parity.compare.clock import SideError
from parity.compare.origin.operation import locate
from parity.compare.origin.result import SearchResult
from parity.compare.session import Session
from parity.run.explain import places
from parity.run.record import Bisect, CaseResult
from parity.run.run import run_case


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
OF_VALUES = ("op", "module")
"""The searches that follow values, which the others only shrink or switch off."""


def _finite(value: Any) -> Any:
    """Returns facts with infinities as text, because JSON has none."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def _declared(result: CaseResult) -> str:
    """Returns the finding behind a failure if it names source lines, such as those that make a leaf."""
    found = result.explanation
    return found.cause.sentence() if found and found.cause and places(found.cause) else ""


def bisect_case(
    case: Case,
    axes: Sequence[str] = tuple(AXES),
    *,
    result: CaseResult | None = None,
    bench: Session | None = None,
    notify: Callable[[str], None] = lambda words: None,
    **more: Any,
) -> Bisect:
    """Returns the results of some searches for the cause of a case's failure.

    Args:
        result: result of a run of the case; None to run it.
        bench: a session with the options of that run.
        **more: other fields of `Question`.
    """
    bench = bench or Session()
    result = result or run_case(case, bench)
    signature = signature_of(result)
    if signature is None:
        return Bisect(case=result.id, sentence=f"{result.id}: nothing fails: nothing to bisect")
    notify("the case itself, again")
    question = Question(case=case, signature=signature, bench=bench, notify=notify, **more)
    if question.status(case, fresh=True) is not Status.FAILS:
        sentence = (
            f"{result.id}: ambiguous: {signature} in one run and not in the next; "
            "the check is not deterministic, so it names no culprit"
        )
        return Bisect(case=result.id, signature=signature, ambiguous=True, sentence=sentence)
    found = [_search(name, question) for name in axes]
    first = next((one for one in found if one.found or one.facts.get("doubt")), None)
    named = "" if first and first.axis in OF_VALUES else _declared(result)
    words = named or (first.sentence if first else "no search names a culprit")
    return Bisect(
        case=result.id,
        signature=signature,
        sentence=f"{result.id}: {signature}" + (f": {words}" if found else ""),
        axes=tuple(dataclasses.replace(one, facts=_finite(one.facts)) for one in found),
    )


def _search(name: str, question: Question) -> SearchResult:
    """Returns the result of one search and notifies of it; an error of a side ends only this search."""
    try:
        result = AXES[name](question)
    except (MapError, SideError) as error:
        result = SearchResult.nothing(name, f"cannot be asked: {str(error).splitlines()[0]}")
    question.notify(f"{name}: {result.sentence}")
    return result
