"""The type of a rewriting rule."""

import dataclasses
from collections.abc import Callable, Iterator

from campaigns.edits.rewrites.source import Patch, Source

__all__ = ["Rule"]

Sites = Iterator[list[Patch]]
"""The patches of each place that a rule rewrites."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A rewriting rule that preserves meaning.

    Args:
        name: one or two words.
        harmless: condition under which it changes nothing; it has sites only under this condition.
        sites: yields, for each place, the patches that rewrite it.
    """

    name: str
    harmless: str
    sites: Callable[[Source], Sites]
