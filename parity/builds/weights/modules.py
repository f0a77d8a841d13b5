"""Pairs modules of both sides, so that leaves of a module stay together, moments with parameters, and names."""

import bisect
import collections
import difflib
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from parity.builds.tree import Leaf
from parity.builds.weights.map import NEAREST, ORDER_ALONE
from parity.builds.weights.names import apart_by_one_number, is_automatic, numbers, prefer_names

__all__ = ["Order", "beside_paired", "copied", "moment_of", "pair_modules", "pair_nearest"]

FEW = 64
"""Number of names per side up to which all pairs are rated."""
WINDOW = 2
"""Number of neighbours on either side of a name's place in each order that are rated if there are more names."""

Order = tuple[Mapping[str, int], Mapping[str, int]]
"""For each side, path of a leaf -> rank of its first use in the program."""

Pairs = list[tuple[str, str]]


def _module(name: str) -> str:
    return name.rpartition("/")[0]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def beside_paired(
    paired: Iterable[tuple[str, str]], reference: Mapping[str, Leaf], candidate: Mapping[str, Leaf]
) -> Pairs:
    """Pairs leaves by name if their modules hold leaves that are already paired.

    Args:
        paired: normalised names of leaves that belong together, in any role.
        reference, candidate: the unpaired leaves of one role. A name may start with a holder, such as
            ``batch_stats``.
    """
    votes: dict[str, set[str]] = collections.defaultdict(set)
    for left, right in paired:
        votes[_module(left)].add(_module(right))
    partner = {module: min(others) for module, others in votes.items() if len(others) == 1 and module}
    ending = collections.defaultdict(list)
    for other in candidate:
        for end in _ends(other):
            ending[end].append(other)
    found: dict[str, str] = {}
    for name, leaf in reference.items():
        parts = name.split("/")
        modules = ("/".join(parts[at:-1]) for at in range(len(parts) - 1))
        module = next((module for module in modules if module in partner), None)
        if module is None:
            continue
        ends = ending[f"{partner[module]}/{_last(name)}"]
        fitting = [other for other in ends if candidate[other].shape == leaf.shape]
        if len(fitting) == 1:
            found.setdefault(fitting[0], name)
    return [(name, other) for other, name in found.items()]


def _ends(name: str) -> list[str]:
    """Returns all suffixes of a name that start at one of its parts, the whole name first."""
    parts = name.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]


def pair_modules(
    reference: Mapping[str, Leaf],
    candidate: Mapping[str, Leaf],
    order: Callable[[], Order],
    states: tuple[Mapping[str, Leaf], Mapping[str, Leaf]] = ({}, {}),
) -> dict[str, Pairs]:
    """Pairs whole modules that hold leaves of the same names, shapes and dtypes.

    Modules of one kind are paired by nearest name. If one of them is named automatically, or only numbers that the
    other side does not have distinguish those of a side, they are paired in the order in which the programs use them.

    Args:
        reference, candidate: the unpaired leaves of one role, by normalised name.
        order: only called if several modules are of one kind, and their names show no place.
        states: for each side further leaves, such as running averages, that tell modules of one kind apart.

    Returns:
        Pairs of leaves by how their modules were found.
    """
    sides = (_kinds(reference, states[0]), _kinds(candidate, states[1]))
    found: dict[str, Pairs] = collections.defaultdict(list)
    for kind in sides[0].keys() & sides[1].keys():
        left, right = sides[0][kind], sides[1][kind]
        if len(left) != len(right):
            continue
        automatic = any(map(is_automatic, (*left, *right)))
        if len(left) == 1:
            how, pairs = "module", {left[0]: right[0]}
        elif automatic or _are_counted(left, right):
            ranks = order()
            used = (_by_use(left, reference, ranks[0]), _by_use(right, candidate, ranks[1]))
            pairs = prefer_names(dict(zip(*used, strict=True)))
            sure = automatic or apart_by_one_number(list(pairs), list(pairs.values()))
            how = "module, in the order of use" if sure else ORDER_ALONE
        else:
            how, pairs = NEAREST, dict(pair_nearest(left, right))
        found[how] += [
            (f"{module}/{last}", f"{other}/{last}") for module, other in pairs.items() for last, *_ in kind[0]
        ]
    return found


def _are_counted(left: Sequence[str], right: Sequence[str]) -> bool:
    """True if the names of a side are those of one list, such as ``norms/0``, and the other's have other numbers."""
    lists = [len({re.sub(r"\d+", "#", name) for name in side}) == 1 for side in (left, right)]
    held = [
        sorted(sorted(numbers(name)) for name in side) for side in (left, right)
    ]  # in any order in a name
    return any(lists) and held[0] != held[1]


Held = tuple[tuple[str, tuple[int, ...], str], ...]
"""Names, shapes and dtypes of leaves in a module."""


def _kinds(leaves: Mapping[str, Leaf], states: Mapping[str, Leaf]) -> dict[tuple[Held, Held], list[str]]:
    """Returns the modules by their leaves and their states."""
    held: dict[str, tuple[list, list]] = collections.defaultdict(lambda: ([], []))
    for name, leaf in leaves.items():
        if _module(name):
            held[_module(name)][0].append((_last(name), leaf.shape, leaf.dtype))
    for name, leaf in states.items():
        for module in held.keys() & set(_ends(_module(name))):
            held[module][1].append((_last(name), leaf.shape, leaf.dtype))
    kinds: dict[tuple[Held, Held], list[str]] = collections.defaultdict(list)
    for module, (own, state) in held.items():
        kinds[tuple(sorted(own)), tuple(sorted(state))].append(module)
    return kinds


def _by_use(modules: Sequence[str], leaves: Mapping[str, Leaf], ranks: Mapping[str, int]) -> list[str]:
    """Returns modules in the order of the first use of any of their leaves; unused ones come last, by name."""
    first: dict[str, float] = collections.defaultdict(lambda: math.inf)
    for name, leaf in leaves.items():
        first[_module(name)] = min(first[_module(name)], ranks.get(leaf.path, math.inf))
    return sorted(modules, key=lambda module: (first[module], module))


def copied(parameters: Mapping[str, Leaf]) -> set[str]:
    """Returns the names of parameters that end with the whole name of another parameter of the same shape.

    Args:
        parameters: parameters of one side, by normalised name.
    """
    found = set()
    for name, leaf in parameters.items():
        owned = moment_of(name, parameters, ())
        if owned and parameters[owned[1]].shape == leaf.shape:
            found.add(name)
    return found


def moment_of(name: str, owners: Container[str], holders: Container[str]) -> tuple[str, str] | None:
    """Returns ``(moment, parameter)`` of a leaf, such as ``("0/mu", "layer/kernel")``; None if it is no moment.

    Args:
        name: normalised name of the leaf.
        owners: names of parameters; the longest one that ends the name owns it.
        holders: names of containers, ignored at every place.
    """
    parts = name.split("/")
    for at in range(1, len(parts)):
        end = "/".join(parts[at:])
        if end in owners:
            return "/".join(part for part in parts[:at] if part and part not in holders), end
    return None


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
