"""What a rule of rewriting is."""

import dataclasses
from collections.abc import Callable, Iterator

from campaigns.edits.rewrites.source import Patch, Source

__all__ = ["Rule"]

Sites = Iterator[list[Patch]]
"""The patches of each place that a rule rewrites."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A way to write the same otherwise.

    Args:
        name: of the rule, in a word or two.
        harmless: when nothing changes by it; nowhere else are there sites.
        sites: yields for each place the patches that rewrite it.
    """

    name: str
    harmless: str
    sites: Callable[[Source], Sites]
