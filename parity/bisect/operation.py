"""The axis ``op``: the first operation with different values, on the way to the failing result."""

from parity.bisect.axis import Question, Search, SearchResult
from parity.compare.origin.operation import locate

__all__ = ["AXIS"]


def look(question: Question) -> SearchResult:
    """Evaluates both programs and names the first operation that is beyond the floor."""
    question.notify("op: both programs, operation by operation")
    return locate(question.case, question.bench, question.signature.channel)


AXIS = Search(name="op", about="the first operation from which values differ", look=look)
