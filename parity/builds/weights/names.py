"""Words of names: which leaves of two sides have similar names."""

import collections
import itertools
import operator
import re
import string
from collections.abc import Iterable, Mapping, Sequence

from parity.verdicts import grouped

MANY = 64
"""Number of names per side from which on words are not compared, since that takes quadratic time."""
KINDS = frozenset({"proj", "projection", "linear", "dense"})
"""Words for any weight; they do not tell its place."""
SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("ffn", "ffw", "ff", "feedforward", "moe"), "mlp"),
    **{"gamma": "scale", "beta": "bias", "shift": "bias"},
}
GLUED = re.compile(r"(?<=.)(proj|gate|norm|attn)$")
"""Words that some names have without a separator: ``qproj``, ``igate``."""


def name_words(name: str) -> tuple[str, ...]:
    """Returns the words and numbers of a name without case, separators and plural."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return tuple(_singular(word) for word in re.findall(r"[^\W\d_]+|\d+", spaced.lower()))


def _singular(word: str) -> str:
    if len(word) < 4 or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def numbers(name: str) -> tuple[str, ...]:
    """Returns the numbers in a name, as texts."""
    return tuple(re.findall(r"\d+", name))


def prefer_names(pairs: Mapping[str, str]) -> dict[str, str]:
    """Returns pairs of names that were found by use, paired by name where the use only permutes related names.

    Two programs that use ``q`` and ``k`` like ``key`` and ``query`` differ, as do those that use the blocks 1, 2, 3
    like the layers 1, 0, 2. If one of the names is related to none (``input`` and ``post_attention`` to ``attention``
    and ``ffn``), names say too little and the use is kept.

    Args:
        pairs: names of leaves or modules of one kind, reference -> candidate.
    """
    chosen = dict(pairs)
    for group in _by_numbers(pairs).values():
        partners = related(group, group.values())
        back = {other: name for name, other in partners.items()}
        permuted = {name for name, other in group.items() if name in partners and other in back}
        while gone := {name for name in permuted if back[group[name]] not in permuted}:
            permuted -= gone
        chosen |= {name: partners[name] for name in permuted}
    rows: dict[tuple[str, str], dict[str, str]] = collections.defaultdict(dict)
    for name, other in chosen.items():
        if not is_automatic(name) and not is_automatic(other):
            rows[re.sub(r"\d+", "#", name), re.sub(r"\d+", "#", other)][name] = other
    for row in rows.values():
        names, others = (sorted(held, key=_by_number) for held in (row, row.values()))
        used = [row[name] for name in names]
        # A use in reverse is a convention of other numbers: p5, p4, p3 are the blocks 0, 1, 2.
        equal = [numbers(name) for name in names] == [numbers(other) for other in others]
        if (equal or used != others[::-1]) and apart_by_one_number(names, others):
            chosen |= zip(names, others, strict=True)
    return chosen


def named(pairs: Mapping[str, str]) -> set[str]:
    """Returns the names that confirm their partner: by words, or by a number that no other name has."""
    counted = apart_by_one_number(list(pairs), list(pairs.values()))
    found: set[str] = set()
    for (number, _), group in _by_numbers(pairs).items():
        partners = related(group, group.values())
        alone = counted and number and len(group) == 1
        found |= {name for name, other in group.items() if alone or partners.get(name) == other}
    return found


def _by_numbers(pairs: Mapping[str, str]) -> dict[tuple, dict[str, str]]:
    groups = grouped(pairs.items(), lambda pair: (numbers(pair[0]), numbers(pair[1])))
    return {key: dict(group) for key, group in groups.items()}


def is_automatic(name: str) -> bool:
    """True if Linen named a module by class and number, such as ``Dense_0``: the name does not show its place."""
    return re.search(r"(^|/)[A-Z][A-Za-z0-9]*/\d+(/|$)", name) is not None


def apart_by_one_number(names: Sequence[str], others: Sequence[str]) -> bool:
    """True if all numbers of the names are those of the others but for one that is added to all, such as 1 and 0."""
    pairs = [(_by_number(name), _by_number(other)) for name, other in zip(names, others, strict=True)]
    steps = {tuple(map(operator.sub, *pair)) for pair in pairs if len(pair[0]) == len(pair[1])}
    single = [step for step in steps if sum(map(bool, step)) <= 1]
    return len(steps) == len(single) == 1 and all(len(one) == len(other) for one, other in pairs)


def _by_number(name: str) -> tuple[int, ...]:
    return tuple(map(int, numbers(name)))


def related(reference: Iterable[str], candidate: Iterable[str]) -> dict[str, str]:
    """Returns the pairs of names that have the same words, without numbers, and share them with no other name.

    Words that all names of a side have do not count. Pairs that are found are left out, and the rest is compared
    again. The last names belong together if they have no word of others, and another pair agrees to the letter.
    """
    sides = list(dict.fromkeys(reference)), list(dict.fromkeys(candidate))
    left, right = sides
    found: dict[str, str] = {}
    while max(len(left), len(right)) <= MANY and (pairs := _same(left, right)):
        found |= pairs
        left = [name for name in left if name not in found]
        right = [name for name in right if name not in pairs.values()]
    if found and len(left) == len(right) == 1:
        own, others = map(_distinct_words, sides)
        exact = any("".join(own[name]) == "".join(others[other]) for name, other in found.items())
        if (
            exact
            and not _share_words([own[left[0]]], others.values())
            and not _share_words(own.values(), [others[right[0]]])
        ):
            found[left[0]] = right[0]
    return found


def _same(reference: Sequence[str], candidate: Sequence[str]) -> dict[str, str]:
    """Returns the pairs of names that have the same words; those in the same order come before others."""
    left, right = _distinct_words(reference), _distinct_words(candidate)
    fitting = [
        (name, other) for name in left for other in right if _have_same_words(left[name], right[other])
    ]
    for pairs in ([pair for pair in fitting if all(map(_agree, left[pair[0]], right[pair[1]]))], fitting):
        counts = collections.Counter(end for pair in pairs for end in enumerate(pair))
        if found := {one: other for one, other in pairs if counts[0, one] == counts[1, other] == 1}:
            return found
    return {}


def _distinct_words(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the words of each name, without numbers and words that all names have."""
    found = {name: [_core(each) for each in name_words(name) if each.isalpha()] for name in names}

    def is_common(word: str) -> bool:
        return len(found) > 1 and all(any(_agree(word, other) for other in held) for held in found.values())

    distinct = {
        name: [each for each in held if each not in KINDS and not is_common(each)]
        for name, held in found.items()
    }
    if any(distinct.values()):
        letters = {each for held in distinct.values() for each in held if len(each) == 1}
        if letters == set(string.ascii_lowercase[: len(letters)]):  # a count: a and b are no after and before
            distinct = {
                name: [f"#{each}" if each in letters else each for each in held]
                for name, held in distinct.items()
            }
        return distinct
    # The names differ by order only: "image_to_token" is not "token_to_image".
    places = [len(set(column)) > 1 for column in zip(*found.values(), strict=False)]
    return {name: list(itertools.compress(held, places)) for name, held in found.items()}


def _core(word: str) -> str:
    """Returns a word without what only says that it is a weight: ``wq`` is ``q``."""
    word = SYNONYMS.get(word, word)
    return word[1:] if len(word) == 2 and word[0] == "w" else GLUED.sub("", word)


def _share_words(left: Iterable[Sequence[str]], right: Iterable[Sequence[str]]) -> bool:
    pairs = itertools.product(itertools.chain(*left), itertools.chain(*right))
    return any(itertools.starmap(_agree, pairs))


def _have_same_words(left: Sequence[str], right: Sequence[str]) -> bool:
    if not left or not right:
        return False
    return "".join(left) == "".join(right) or all(
        any(_agree(word, other) for other in others)
        for one, others in ((left, right), (right, left))
        for word in one
    )


def _agree(left: str, right: str) -> bool:
    """True if a word begins the other, or abbreviates it, such as ``attn`` for ``attention``."""
    short, long = sorted((left, right), key=len)
    letters = iter(long)
    return long.startswith(short) or (
        len(short) > 1 and short[0] == long[0] and all(letter in letters for letter in short)
    )
