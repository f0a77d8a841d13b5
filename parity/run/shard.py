"""A shard of a run: the cases that one machine takes."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = ["Shard"]

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One part of a run: every ``of``-th case, from the ``number``-th on.

    Args:
        number: from 1.
        of: number of parts.
        places: positions of its finished cases among all cases.
        total: number of cases of all parts.
    """

    number: int
    of: int
    places: tuple[int, ...] = ()
    total: int = 0

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Returns the part that a text such as ``3/8`` names.

        Raises:
            ValueError: the text has another form.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        number, of = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= of:
            raise ValueError(f"--shard {text!r}: expected a part of all, such as 1/8 up to 8/8")
        return cls(number, of)

    def take(self, items: Sequence[Item]) -> list[Item]:
        """Returns the part's share of all items, interleaved, so that slow neighbours fall to different parts."""
        return list(items[self.number - 1 :: self.of])

    def record(self) -> dict[str, Any]:
        """Returns the shard in the form of the schema."""
        return {"number": self.number, "of": self.of, "places": list(self.places), "total": self.total}
