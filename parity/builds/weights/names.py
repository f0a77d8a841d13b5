"""Words of names: which leaves of two sides have similar names."""

import collections
import itertools
import re
from collections.abc import Iterable, Mapping

__all__ = ["numbers", "prefer_names", "related", "words"]

MANY = 64
"""Number of names per side from which on words are not compared, since that takes quadratic time."""


def words(name: str) -> tuple[str, ...]:
    """Returns the words and numbers of a name without case, separators and plural."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return tuple(word.removesuffix("s") for word in re.findall(r"[^\W\d_]+|\d+", spaced.lower()))


def numbers(name: str) -> tuple[str, ...]:
    """Returns the numbers in a name, as texts."""
    return tuple(re.findall(r"\d+", name))


def prefer_names(pairs: Mapping[str, str]) -> dict[str, str]:
    """Returns pairs of names that were found by use, paired by name where the use only permutes related names.

    Two programs that use ``q`` and ``k`` like ``key`` and ``query`` differ. If one of the names is related to none
    (``input`` and ``post_attention`` to ``attention`` and ``ffn``), names say too little and the use is kept.

    Args:
        pairs: names of leaves or modules of one kind, reference -> candidate.
    """
    groups: dict[tuple, dict[str, str]] = collections.defaultdict(dict)
    for name, other in pairs.items():
        groups[numbers(name), numbers(other)][name] = other
    chosen = dict(pairs)
    for group in groups.values():
        partners = related(group, group.values())
        back = {other: name for name, other in partners.items()}
        permuted = {name for name, other in group.items() if name in partners and other in back}
        while gone := {name for name in permuted if back[group[name]] not in permuted}:
            permuted -= gone
        chosen |= {name: partners[name] for name in permuted}
    return chosen


def related(reference: Iterable[str], candidate: Iterable[str]) -> dict[str, str]:
    """Returns the pairs of names that are more similar than either is to any other name, whatever their numbers.

    Words that all names of a side have do not count. A word agrees with one that it begins or abbreviates.
    """
    left, right = _distinct_words(reference), _distinct_words(candidate)
    if max(len(left), len(right)) > MANY:
        return {}
    similarity = {
        (name, other): value
        for name, other in itertools.product(left, right)
        if (value := _likeness(left[name], right[other]))
    }
    best = [_strictly_best(similarity, side) for side in (0, 1)]
    return {name: other for name, other in best[0].items() if best[1].get(other) == name}


def _distinct_words(names: Iterable[str]) -> dict[str, set[str]]:
    """Returns the words of each name, without numbers and words that all names have."""
    found = {name: {_letters(each) for each in set(words(name)) if each.isalpha()} for name in names}
    common = set.intersection(*found.values()) if len(found) > 1 else set()
    return {name: held - common for name, held in found.items()}


def _letters(word: str) -> str:
    return word[1:] if len(word) == 2 and word[0] == "w" else word  # wq, the weight of a query


def _likeness(left: set[str], right: set[str]) -> float:
    """Returns the share of words that agree with one of the other name (Dice's coefficient)."""
    agreeing = [(one, other) for one in left for other in right if _agree(one, other)]
    return sum(len(set(words)) for words in zip(*agreeing, strict=True)) / max(1, len(left) + len(right))


def _agree(left: str, right: str) -> bool:
    """True if a word begins the other, or abbreviates it, such as ``attn`` for ``attention``."""
    short, long = sorted((left, right), key=len)
    letters = iter(long)
    return long.startswith(short) or (
        len(short) > 2 and short[0] == long[0] and all(letter in letters for letter in short)
    )


def _strictly_best(similarity: Mapping[tuple[str, str], float], side: int) -> dict[str, str]:
    """Returns the partner of each name of a side that is more similar to one name than to all others."""
    rated: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)
    for pair, value in similarity.items():
        rated[pair[side]].append((value, pair[1 - side]))
    tops = {name: sorted(others)[-2:] for name, others in rated.items()}
    return {name: top[-1][1] for name, top in tops.items() if len(top) == 1 or top[0][0] < top[1][0]}
