"""The result of a search for the cause of a failure, as a sentence and a table."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from parity.verdicts import Finding


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a search.

    Args:
        found: True if the search names a culprit; if not, the sentence gives the reason.
        head, rows: a short table, or nothing.
        facts: the result for tools.
        finding: the difference that the sentence names; None if it names none.
    """

    axis: str
    sentence: str
    found: bool = True
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    finding: Finding | None = None

    @classmethod
    def nothing(cls, axis: str, sentence: str) -> "SearchResult":
        """Returns the result of a search that names no culprit, with the reason."""
        return cls(axis=axis, sentence=sentence, found=False)
