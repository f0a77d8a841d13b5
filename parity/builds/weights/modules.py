"""Pairs modules of both sides, so that leaves of a module stay together, moments with parameters, and names."""

import collections
import dataclasses
import difflib
import itertools
import math
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from parity.builds.tree import Leaf
from parity.builds.weights.map import HOLDERS, ORDER, ORDER_ALONE
from parity.builds.weights.names import is_automatic, named, numbers, prefer_names
from parity.verdicts import grouped

FEW = 64
"""Number of names per side of which all pairs are rated, since that takes quadratic time."""

Uses = Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]
"""Program -> for reference and candidate, ``{path: fingerprint of how the program uses the leaf}``."""

Order = tuple[Mapping[str, Any], Mapping[str, Any]]
"""For each side, path of a leaf -> rank of its first use in the program; comparable."""

Paths = tuple[Mapping[str, Set[str]], Mapping[str, Set[str]]]
"""For each side, texts by a path or a module."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """Facts on leaves from the programs of both sides; each is computed only if names and shapes leave a choice.

    Args:
        use: fingerprints of how each program uses each leaf; None if there are no programs.
        order: the place where each side's program first uses each leaf.
        near: path of a leaf -> names of the operations that process it, up to the next product of matrices.
        feeding: outermost module -> paths of the leaves on which the new values of its parameters depend.
    """

    use: Callable[[], Uses] | None = None
    order: Callable[[], Order] = lambda: ({}, {})
    near: Callable[[], Paths] = lambda: ({}, {})
    feeding: Callable[[], Paths] = lambda: ({}, {})


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
    near: Callable[[], Paths],
    states: tuple[Mapping[str, Leaf], Mapping[str, Leaf]] = ({}, {}),
) -> Iterator[tuple[str, Pairs]]:
    """Pairs whole modules that hold leaves of the same names, shapes and dtypes.

    Modules of one kind are paired in the order in which the programs use them, except where names say otherwise.

    Args:
        reference, candidate: the unpaired leaves of one role, by normalised name.
        order, near: only called if several modules are of one kind.
        states: for each side further leaves, such as running averages, that tell modules of one kind apart.

    Yields:
        How modules of one kind are found, and pairs of their leaves; kinds of few modules first.
    """
    sides = (_kinds(reference, states[0]), _kinds(candidate, states[1]))
    for kind in sorted(sides[0].keys() & sides[1].keys(), key=lambda kind: (len(sides[0][kind]), kind)):
        left, right = sides[0][kind], sides[1][kind]
        if len(left) != len(right):
            continue
        how, pairs = "module", dict(zip(left, right, strict=True))
        if len(pairs) > 1:
            how, pairs = pair_in_order(left, right, order(), near)
        yield (
            how,
            [
                (f"{module}/{last}", f"{other}/{last}")
                for module, other in pairs.items()
                for last, *_ in kind[0]
            ],
        )


def pair_in_order(
    reference: Mapping[str, Sequence[Leaf]],
    candidate: Mapping[str, Sequence[Leaf]],
    order: Order,
    near: Callable[[], Paths],
) -> tuple[str, dict[str, str]]:
    """Pairs names by their numbers, else in the order in which the programs use their leaves, unless words object.

    Leaves that different operations process, as many of each kind on both sides, are paired kind by kind: the order of
    statements that do not depend on each other may differ.

    Returns:
        How they are paired, `ORDER_ALONE` if names do not confirm it; and the pairs.
    """
    automatic = any(map(is_automatic, (*reference, *candidate)))
    left, right = ({tuple(sorted(numbers(name))): name for name in side} for side in (reference, candidate))
    if not automatic and left.keys() == right.keys() and len(left) == len(reference):
        return "numbers in the name", {name: right[key] for key, name in left.items()}
    processed = [
        {
            name: sorted(set().union(*(uses.get(leaf.path, ()) for leaf in leaves)))
            for name, leaves in side.items()
        }
        for side, uses in zip((reference, candidate), near(), strict=True)
    ]
    if sorted(processed[0].values()) != sorted(processed[1].values()):
        processed = [{name: [] for name in side} for side in (reference, candidate)]
    used = (
        sorted(
            side,
            key=lambda name: (
                uses[name],
                min(ranks.get(leaf.path, (math.inf,)) for leaf in side[name]),
                name,
            ),
        )
        for side, ranks, uses in zip((reference, candidate), order, processed, strict=True)
    )
    pairs = prefer_names(dict(zip(*used, strict=True)))
    if named(pairs) == pairs.keys():
        return f"name and {ORDER}", pairs
    return ORDER if automatic else ORDER_ALONE, pairs


Held = tuple[tuple[str, tuple[int, ...], str], ...]
"""Names, shapes and dtypes of leaves in a module."""


def _kinds(
    leaves: Mapping[str, Leaf], states: Mapping[str, Leaf]
) -> dict[tuple[Held, Held], dict[str, list[Leaf]]]:
    """Returns the modules with their leaves, by the kinds of their leaves and their states."""
    own, state = collections.defaultdict(dict), collections.defaultdict(list)
    for name, leaf in leaves.items():
        if _module(name):
            own[_module(name)][_last(name)] = leaf
    for name, leaf in states.items():
        for module in own.keys() & set(_ends(_module(name))):
            state[module].append((_last(name), leaf.shape, leaf.dtype))
    kinds: dict[tuple[Held, Held], dict[str, list[Leaf]]] = collections.defaultdict(dict)
    for module, held in own.items():
        kind = tuple(sorted((last, leaf.shape, leaf.dtype) for last, leaf in held.items()))
        kinds[kind, tuple(sorted(state[module]))][module] = list(held.values())
    return kinds


def copied(parameters: Mapping[str, Leaf]) -> set[str]:
    """Returns the names of parameters that end with the whole name of another parameter of the same shape."""
    found = set()
    for name, leaf in parameters.items():
        owner = next((end for end in _ends(name)[1:] if end in parameters), None)
        if owner and parameters[owner].shape == leaf.shape:
            found.add(name)
    return found


def clones(parameters: Mapping[str, Leaf]) -> list[list[list[str]]]:
    """Returns the parameters of each two outermost modules that alone hold such names and types."""
    return [pair for pair in _by_content(parameters).values() if len(pair) == 2]


def averages(
    state: Mapping[str, Leaf], parameters: Mapping[str, Leaf]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns ``{name: (module, parameters)}`` of the modules of a state that hold what modules of parameters hold.

    They are taken for averages, such as ``slow/hidden/kernel`` for that of ``critic/hidden/kernel``. The parameters are
    those of all outermost modules with leaves of these names and types.
    """
    modules, found = _by_content(parameters), {}
    for module, names in _outermost(state).items():
        inside = grouped(itertools.chain(*modules.get(_held(state, names), ())), _inside)
        found |= {name: (module, tuple(inside[_inside(name)])) for name in names if inside}
    return found


def _outermost(leaves: Iterable[str]) -> dict[str, list[str]]:
    return grouped((name for name in leaves if "/" in name), lambda name: name.partition("/")[0])


def _by_content(leaves: Mapping[str, Leaf]) -> dict[Hashable, list[list[str]]]:
    """Returns the leaves of each outermost module, by the names and types that it holds."""
    return grouped(_outermost(leaves).values(), lambda names: _held(leaves, names))


def _inside(name: str) -> str:
    return name.partition("/")[2]


def _held(leaves: Mapping[str, Leaf], names: Iterable[str]) -> Hashable:
    return frozenset((_inside(name), leaves[name].shape, leaves[name].dtype) for name in names)


def short_names(names: Iterable[str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Returns parameters by the names that their moments may end with.

    The first ones may lack the modules that hold all parameters, such as ``net`` of a trainer. The second ones lack the
    outermost module, which has an optimizer of its own; several parameters may end so.
    """
    found = short = {name: name for name in names}
    while len({name.partition("/")[0] for name in short}) == 1 and all("/" in name for name in short):
        short = {_inside(name): owner for name, owner in short.items()}
        found = short | found
    parts = grouped(short, _inside)
    return found, {part: tuple(short[name] for name in held) for part, held in parts.items() if part}


def moment_of(name: str, owners: Container[str]) -> tuple[str, str] | None:
    """Returns ``(moment, parameter)`` of a leaf, such as ``("0/mu", "layer/kernel")``; None if it is no moment.

    Args:
        owners: names of parameters; the one with the longest end of the name owns it. The name may begin with the rest
            of the owner's, as that of a part with its own optimizer: ``decoder/0/mu/layer/kernel``.
    """
    parts = name.split("/")
    for at in range(1, len(parts)):
        for begin in range(at):
            owner = "/".join(parts[:begin] + parts[at:])
            if owner in owners:
                return "/".join(part for part in parts[begin:at] if part and part not in HOLDERS), owner
    return None


def pair_nearest(reference: Sequence[str], candidate: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs distinct names of two sides one-to-one, the most similar first; among many, only names of equal numbers."""
    many = max(len(reference), len(candidate)) > FEW
    groups: dict[tuple, tuple[list[str], list[str]]] = collections.defaultdict(lambda: ([], []))
    for side, names in enumerate((reference, candidate)):
        held = grouped(sorted(names), lambda name: tuple(sorted(numbers(name))) if many else ())
        for key, equal in held.items():
            for at, name in enumerate(equal):
                groups[key, at // FEW][side].append(name)
    found: dict[str, str] = {}
    taken: set[str] = set()
    matcher = difflib.SequenceMatcher()
    for left, right in groups.values():
        rated = []
        for other in right:
            matcher.set_seq2(other)  # analysed once for all names
            for name in left:
                matcher.set_seq1(name)
                rated.append((matcher.ratio(), name, other))
        for _, name, other in sorted(rated, reverse=True):
            if name not in found and other not in taken:
                found[name] = other
                taken.add(other)
    return list(found.items())
