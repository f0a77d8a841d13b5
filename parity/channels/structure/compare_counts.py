"""Compares two multisets of facts, such as collectives or dots, and pairs the entries that differ."""

import collections
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

__all__ = ["pair_up"]

T = TypeVar("T")


def pair_up(
    reference: Sequence[T], candidate: Sequence[T], keys: Sequence[Callable[[T], Hashable]]
) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Pairs the entries of two sides, regardless of their order.

    Args:
        reference: entries of the reference.
        candidate: entries of the candidate.
        keys: from the full key, whose pairs are equal, to the weakest that still joins two entries.

    Returns:
        The pairs that only a weaker key than the first joins, the remaining entries of the reference, and the remaining
        entries of the candidate.
    """
    left, right = dict(enumerate(reference)), dict(enumerate(candidate))
    pairs = []
    for strength, key in enumerate(keys):
        waiting: dict[Hashable, collections.deque[int]] = collections.defaultdict(collections.deque)
        for index, entry in right.items():
            waiting[key(entry)].append(index)
        for index, entry in list(left.items()):
            if waiting[key(entry)]:
                other = right.pop(waiting[key(entry)].popleft())
                left.pop(index)
                if strength:
                    pairs.append((entry, other))
    return pairs, list(left.values()), list(right.values())
