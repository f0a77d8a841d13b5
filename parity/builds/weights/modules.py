"""Which module of one side is which of the other: its leaves stay together, and moments with their parameters."""

import collections
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from parity.builds.tree import Leaf

__all__ = ["Order", "beside_paired", "copied", "moment_of", "nearest_first", "pair_modules", "unheld_prefix"]

Order = tuple[Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]]
"""Path of a leaf -> where its side's program first uses it."""

Pairs = list[tuple[str, str]]
_AUTOMATIC = re.compile(r"(^|/)[A-Z][A-Za-z0-9]*/\d+(/|$)")
"""A module that Linen names by class and number, such as ``Dense_0``, which says nothing of its place."""


def _module(name: str) -> str:
    return name.rpartition("/")[0]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def beside_paired(
    paired: Iterable[tuple[str, str]], reference: Mapping[str, Leaf], candidate: Mapping[str, Leaf]
) -> Pairs:
    """Pairs leaves whose modules hold leaves that are paired already, by their own names.

    Args:
        paired: normalised names of leaves that belong together, in any role.
        reference, candidate: the leaves that are left of one role. A name may have a holder in front, such as
            ``batch_stats``.
    """
    votes: dict[str, set[str]] = collections.defaultdict(set)
    for ours, theirs in paired:
        votes[_module(ours)].add(_module(theirs))
    partner = {module: min(others) for module, others in votes.items() if len(others) == 1 and module}
    found: Pairs = []
    for name, leaf in reference.items():
        parts = name.split("/")
        modules = ("/".join(parts[at:-1]) for at in range(len(parts) - 1))
        module = next((module for module in modules if module in partner), None)
        if module is None:
            continue
        end = f"{partner[module]}/{_last(name)}"
        fitting = [
            other
            for other, twin in candidate.items()
            if (other == end or other.endswith(f"/{end}")) and twin.shape == leaf.shape
        ]
        if len(fitting) == 1 and fitting[0] not in {theirs for _, theirs in found}:
            found.append((name, fitting[0]))
    return found


def pair_modules(
    reference: Mapping[str, Leaf], candidate: Mapping[str, Leaf], order: Callable[[], Order]
) -> tuple[Pairs, Pairs]:
    """Pairs whole modules that hold leaves of the same names, shapes and dtypes.

    Modules of one kind are paired by nearest name; where one of them is named automatically, names say nothing,
    and they are paired in the order in which the programs first use them.

    Args:
        reference, candidate: the leaves that are left of one role, by normalised name.
        order: asked only where several modules are alike.

    Returns:
        Pairs of leaves of modules that are alone of their kind or are found by name, and by order.
    """
    sides = (_kinds(reference), _kinds(candidate))
    named: Pairs = []
    ordered: Pairs = []
    for kind in sides[0].keys() & sides[1].keys():
        ours, theirs = sides[0][kind], sides[1][kind]
        if len(ours) != len(theirs):
            continue
        automatic = any(_AUTOMATIC.search(module) for module in (*ours, *theirs))
        if len(ours) > 1 and automatic:
            places = order()
            pairs = zip(
                _by_use(ours, reference, places[0]), _by_use(theirs, candidate, places[1]), strict=True
            )
        else:
            pairs = _nearest(ours, theirs)
        for module, other in pairs:
            leaves = [(f"{module}/{last}", f"{other}/{last}") for last, *_ in kind]
            (ordered if len(ours) > 1 and automatic else named).extend(leaves)
    return named, ordered


Kind = tuple[tuple[str, tuple[int, ...], str], ...]


def _kinds(leaves: Mapping[str, Leaf]) -> dict[Kind, list[str]]:
    """Returns the modules by what they hold."""
    held: dict[str, list[tuple[str, tuple[int, ...], str]]] = collections.defaultdict(list)
    for name, leaf in leaves.items():
        if _module(name):
            held[_module(name)].append((_last(name), leaf.shape, leaf.dtype))
    kinds: dict[Kind, list[str]] = collections.defaultdict(list)
    for module, entries in held.items():
        kinds[tuple(sorted(entries))].append(module)
    return kinds


def _by_use(
    modules: Sequence[str], leaves: Mapping[str, Leaf], places: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Returns modules in the order of the first use of any of their leaves; what is not used comes last, by name."""
    first = {
        module: min(
            (
                places[leaf.path]
                for name, leaf in leaves.items()
                if _module(name) == module and leaf.path in places
            ),
            default=None,
        )
        for module in modules
    }
    return sorted(modules, key=lambda module: (first[module] is None, first[module] or (), module))


def nearest_first(options: Mapping[str, Sequence[str]]) -> Pairs:
    """Returns all pairs of a name and a partner that it may have, those of the most similar names first.

    Args:
        options: ``{partner: names}``.
    """
    rated, matcher = [], difflib.SequenceMatcher()
    for other, names in options.items():
        matcher.set_seq2(other)  # which it analyses once for all names
        for name in names:
            matcher.set_seq1(name)
            rated.append((matcher.ratio(), name, other))
    return [(name, other) for _, name, other in sorted(rated, reverse=True)]


def _nearest(ours: Sequence[str], theirs: Sequence[str]) -> Pairs:
    left, right, found = set(ours), set(theirs), []
    for one, other in nearest_first(dict.fromkeys(theirs, ours)):
        if one in left and other in right:
            left.remove(one)
            right.remove(other)
            found.append((one, other))
    return found


def unheld_prefix(prefix: str, holders: Iterable[str]) -> str:
    """Returns what comes before a parameter's name without the names of holders: ``0/mu/params/`` is ``0/mu``."""
    gone = set(holders)
    return "/".join(part for part in prefix.split("/") if part and part not in gone)


def copied(parameters: Mapping[str, Leaf]) -> set[str]:
    """Returns the names of parameters that end with the whole name of another one of the same shape.

    Args:
        parameters: of one side, by normalised name.
    """
    found = set()
    for name, leaf in parameters.items():
        owned = moment_of(name, parameters, ())
        if owned and parameters[owned[1]].shape == leaf.shape:
            found.add(name)
    return found


def moment_of(name: str, owners: Iterable[str], holders: Iterable[str]) -> tuple[str, str] | None:
    """Returns which moment of which parameter a leaf is: ``("0/mu", "layer/kernel")``; None for what is none.

    Args:
        name: normalised name of the leaf.
        owners: names of parameters; the longest that ends the name owns it.
        holders: words that say nothing, wherever they stand.
    """
    parts, known = name.split("/"), set(owners)
    for at in range(1, len(parts)):
        end = "/".join(parts[at:])
        if end in known:
            return unheld_prefix("/".join(parts[:at]), holders), end
    return None
