"""Pairs names by similarity, the most similar first, with a bounded number of candidates for each name."""

import bisect
import difflib
import re
from collections.abc import Iterator, Sequence

__all__ = ["pair_nearest"]

FEW = 16
"""Number of names per side up to which all pairs are rated."""
WINDOW = 2
"""Number of neighbours on either side of a name's place in each order that are rated if there are more names."""


def pair_nearest(reference: Sequence[str], candidate: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs distinct names of two sides one-to-one until one side has none left.

    Rating every pair takes quadratic time. For many names only neighbours are rated (the sorted neighbourhood
    method): names at the same place after sorting both sides by the numbers in them or as text.

    Args:
        reference, candidate: the names of both sides.

    Returns:
        The pairs, the most similar names of each round first.
    """
    left, right = list(reference), list(candidate)
    pairs: list[tuple[str, str]] = []
    while left and right:
        every = max(len(left), len(right)) <= FEW
        options = ((other, left) for other in right) if every else _neighbours(left, right)
        found = _greedy(options)
        pairs += found
        first, second = ({names[side] for names in found} for side in (0, 1))
        left, right = ([n for n in left if n not in first], [n for n in right if n not in second])
    return pairs


def _greedy(options: Iterator[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Returns pairs from ``(partner, names to choose from)``, the most similar first; each name is used once."""
    rated, matcher = [], difflib.SequenceMatcher()
    for other, names in options:
        matcher.set_seq2(other)  # analysed once for all names
        for name in names:
            matcher.set_seq1(name)
            rated.append((matcher.ratio(), name, other))
    found: dict[str, str] = {}
    taken: set[str] = set()
    for _, name, other in sorted(rated, reverse=True):
        if name not in found and other not in taken:
            found[name] = other
            taken.add(other)
    return list(found.items())


def _neighbours(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields each name of the right side with its neighbours on the left side."""
    near: dict[str, dict[str, None]] = {other: {} for other in right}
    for key in (_by_numbers, _by_text):
        first, second = sorted(left, key=key), sorted(right, key=key)
        keys = [key(name) for name in first]
        for place, other in enumerate(second):
            # The name's relative place in its own side, and its insertion point in the other side.
            for at in (place * len(first) // len(second), bisect.bisect_left(keys, key(other))):
                near[other].update(dict.fromkeys(first[max(0, at - WINDOW) : at + WINDOW + 1]))
    return ((other, list(names)) for other, names in near.items())


def _by_numbers(name: str) -> tuple:
    return tuple(int(number) for number in re.findall(r"\d+", name)), _by_text(name)


def _by_text(name: str) -> tuple:
    return tuple((len(word), word) if word.isdigit() else (0, word) for word in re.split(r"(\d+)", name))
