"""Infers a weight map from the leaves of two states, the most reliable evidence first."""

import collections
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from parity.builds.tree import Leaf, Role
from parity.builds.weights.map import (
    FOLLOWS,
    GUESSED,
    HOLDERS,
    NEAREST,
    ConflictError,
    Entry,
    MapError,
    Rule,
    WeightMap,
    normalise,
    strip_container,
)
from parity.builds.weights.modules import (
    Order,
    beside_paired,
    copied,
    is_automatic,
    moment_of,
    pair_modules,
)
from parity.builds.weights.nearest import pair_nearest
from parity.builds.weights.stacks import layer_groups, stack_axes
from parity.builds.weights.transforms import Identity, Stack, Transform, Unstack

__all__ = ["Uses", "infer"]

SIDES = ("reference", "candidate")
Leaves = Mapping[str, Leaf]
Uses = Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]
"""Program -> for reference and candidate, ``{path: fingerprint of how the program uses the leaf}``."""


def infer(
    reference: Leaves,
    candidate: Leaves,
    rules: Sequence[Rule] = (),
    use: Callable[[], Uses] | None = None,
    order: Callable[[], Order] = lambda: ({}, {}),
) -> WeightMap:
    """Pairs all leaves of two states.

    Args:
        reference, candidate: the leaves of both sides.
        rules: explicit pairings, tried first.
        use: computes a fingerprint of how each program of both sides uses each leaf; only called if names
            and shapes are ambiguous.
        order: computes the place where each side's program first uses each leaf; only called if several modules
            have equal content.

    Returns:
        The map; RNG leaves without a partner are in `WeightMap.alone`.

    Raises:
        ConflictError: two programs pair a leaf with different leaves of the other side.
        MapError: other leaves have no partner.
        ValueError: a rule pairs nothing, or its transform does not fit.
    """
    search = _Search(reference, candidate)
    search.by_rules(rules)
    for role in Role:
        for matcher in (search.by_parameter, search.by_name, search.by_stack, search.by_words):
            matcher(role)
        if use and search.has_choice(role):
            search.by_use(role, use())
        search.by_module(role, order)
        search.by_shape(role)
    left = [[side[path] for path in names.values()] for side, names in search.sides()]
    missing = [[leaf for leaf in leaves if leaf.role is not Role.RNG] for leaves in left]
    if any(missing):
        raise MapError(*missing, hints=search.idle)
    if search.idle:
        raise ValueError(search.idle[0])
    first, second = (tuple(sorted(leaf.path for leaf in leaves)) for leaves in left)
    entries = tuple(sorted(search.entries, key=lambda entry: entry.reference))
    return WeightMap(entries=entries, alone=(first, second))


class _Search:
    """Matches leaves step by step; matched leaves are removed from the names of both sides."""

    def __init__(self, reference: Leaves, candidate: Leaves):
        self.leaves = (reference, candidate)
        self.names = tuple({normalise(path): path for path in side} for side in self.leaves)
        copies = [copied(_named(side, names)) for side, names in self.sides()]
        sizes = [sum(leaf.role is Role.PARAMS for leaf in side.values()) for side in self.leaves]
        only_copies = sizes[0] - len(copies[0]) == sizes[1] - len(copies[1])
        self.copies = tuple(frozenset(found) if only_copies else frozenset() for found in copies)
        for side, names in zip(self.leaves, self.names, strict=True):
            if len(names) < len(side):
                clashes = sorted(set(side) - set(names.values()))
                raise ValueError(
                    f"weight map: {clashes} have the normalised names of other leaves; rename them"
                )
        self.paths_of = tuple(dict(names) for names in self.names)
        self.idle: list[str] = []
        self.entries: list[Entry] = []

    def sides(self):
        return zip(self.leaves, self.names, strict=True)

    def _of(self, side: int, role: Role) -> dict[str, Leaf]:
        leaves, names = self.leaves[side], self.names[side]
        return {name: leaves[path] for name, path in names.items() if self._role(side, name) is role}

    def _role(self, side: int, name: str) -> Role:
        """Returns the role; a copy of a parameter, such as an average that NNX holds in a Param, counts as state."""
        role = self.leaves[side][self.names[side][name]].role
        return Role.STATE if role is Role.PARAMS and name in self.copies[side] else role

    def _pair(
        self,
        reference: Iterable[str],
        candidate: Iterable[str],
        matched_by: str,
        transform: Transform = Identity(),
    ) -> None:
        paths = [
            tuple(names.pop(name) for name in side)
            for names, side in zip(self.names, (reference, candidate), strict=True)
        ]
        role = self.leaves[0][paths[0][0]].role
        self.entries.append(
            Entry(
                reference=paths[0],
                candidate=paths[1],
                transform=transform,
                role=role,
                matched_by=matched_by,
            )
        )

    def by_rules(self, rules: Sequence[Rule]) -> None:
        """Pairs the leaves that rules name.

        Raises:
            ValueError: the pattern of a rule matches no leaf of the reference.
        """
        every = tuple(tuple(side) for side in self.names)
        for rule in rules:
            named = [found for name in every[0] if (found := self._named(rule, name))]
            if not named:
                words = f"{rule.reference[0]!r} matches no leaf of the reference"
                raise ValueError(self._idle(rule, words, rule.reference[0]))
            whole = [found for found in named if not self._absent(found, every)]
            if not whole:
                side, name = self._absent(named[0], every)[0]
                words = f"it pairs {named[0][0][0]}, but the {SIDES[side]} has no leaf {name}"
                self.idle.append(self._idle(rule, words, name))
            for reference, targets in whole:
                left = not self._absent((reference, targets), self.names)
                if left and self._have_one_role(reference, targets):
                    self._check_shapes(rule, reference, targets)
                    self._pair(reference, targets, "rule", rule.transform)

    def _absent(
        self, found: tuple[list[str], list[str]], names: Sequence[Collection[str]]
    ) -> list[tuple[int, str]]:
        """Returns ``(side, name)`` of each leaf that is not among the given names of its side."""
        return [(side, name) for side, group in enumerate(found) for name in group if name not in names[side]]

    def _idle(self, rule: Rule, why: str, text: str) -> str:
        """Returns a message that a rule is wrong, with the leaves of the most similar names on both sides."""
        rules = f"weight rule {', '.join(rule.reference)} -> {', '.join(rule.candidate)}"
        texts = (text, text) if text != rule.reference[0] else (text, rule.candidate[0])
        near = [
            f"in the {label} {', '.join(_described(side[self.paths_of[at][name]]) for name in names)}"
            for at, (label, side) in enumerate(zip(SIDES, self.leaves, strict=True))
            if (names := _nearest(texts[at], list(self.paths_of[at])))
        ]
        return f"{rules}: {why}; nearest: {'; '.join(near)}"

    def _named(self, rule: Rule, name: str) -> tuple[list[str], list[str]] | None:
        """Returns the leaves of both sides that a rule pairs; None if its pattern does not match ``name``."""
        pattern = rule.reference[0]
        match = re.fullmatch(pattern, name) or re.fullmatch(pattern, strip_container(self.paths_of[0][name]))
        if not match:
            return None
        reference = [name, *(normalise(match.expand(other)) for other in rule.reference[1:])]
        return reference, [normalise(match.expand(template)) for template in rule.candidate]

    def _have_one_role(self, reference: Sequence[str], targets: Sequence[str]) -> bool:
        """True if all leaves have one role; a parameter's rule may also match its moments."""
        roles = {
            side[names[name]].role
            for (side, names), group in zip(self.sides(), (reference, targets), strict=True)
            for name in group
        }
        return len(roles) == 1

    def _check_shapes(self, rule: Rule, reference: Sequence[str], targets: Sequence[str]) -> None:
        """Raises a `ValueError` unless a rule's transform maps the shapes of one side to those of the other."""
        shapes = [
            [side[names[name]].shape for name in chosen]
            for (side, names), chosen in zip(self.sides(), (reference, targets), strict=True)
        ]
        try:
            got = rule.transform.shapes(shapes[0])  # without arrays: published sizes would fill the memory
        except (ValueError, IndexError) as error:
            got = [str(error)]
        if got != shapes[1]:
            matching = [
                f"{label} {', '.join(_described(side[names[name]]) for name in group)}"
                for label, (side, names), group in zip(SIDES, self.sides(), (reference, targets), strict=True)
            ]
            raise ValueError(
                f"weight rule for {reference}: {rule.transform} of {shapes[0]} gives {got}, expected "
                f"{shapes[1]} of {targets} ({'; '.join(matching)}); correct the transform or the paths"
            )

    def by_name(self, role: Role) -> None:
        candidate = self._of(1, role)
        for name, leaf in self._of(0, role).items():
            if name in candidate and leaf.shape == candidate[name].shape:
                self._pair([name], [name], "name")

    def by_words(self, role: Role) -> None:
        """Pairs leaves whose names have equal words, such as ``layer_0/pre_norm`` and ``layers/0/PreNorm``."""
        found = tuple(_by_words(self._of(side, role)) for side in (0, 1))
        for key, names in found[0].items():
            others = found[1].get(key, [])
            if len(names) == len(others) == 1:
                self._pair(names, others, "words of the name")

    def by_stack(self, role: Role) -> None:
        for side in (0, 1):
            stacked, single = self._of(side, role), self._of(1 - side, role)
            for name, members in layer_groups(single).items():
                axes = stack_axes(stacked.get(name), [single[member] for member in members])
                if not axes or any(member not in self.names[1 - side] for member in members):
                    continue
                axis, how = axes[0], "name of a stack"
                if len(axes) > 1:
                    how += f", {GUESSED} {axis} of {', '.join(map(str, axes))} that fit"
                if side == 0:
                    self._pair([name], members, how, Unstack(axis, len(members)))
                else:
                    self._pair(members, [name], how, Stack(axis, len(members)))

    def by_parameter(self, role: Role) -> None:
        """Pairs moments like their parameters, which are already paired, regardless of their holders.

        The longest parameter name that fits owns a moment. Averages of parameters count as moments.
        """
        if role not in (Role.OPTIMIZER, Role.STATE):
            return
        entries = [entry for entry in self.entries if entry.role is Role.PARAMS]
        moments = self._moments(0, role, entries), self._moments(1, role, entries)
        for entry in entries:
            owners = [[normalise(path) for path in paths] for paths in (entry.reference, entry.candidate)]
            for moment in list(moments[0].get(owners[0][0], {})):
                chosen = [
                    [name for owner in names if (name := _same_moment(side.get(owner, {}), moment))]
                    for side, names in zip(moments, owners, strict=True)
                ]
                found = [len(names) for names in chosen] == [len(names) for names in owners]
                if found and self._have_shapes(chosen, entry):
                    self._pair(chosen[0], chosen[1], FOLLOWS, entry.transform)

    def _moments(self, side: int, role: Role, entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
        """Returns ``{parameter: {moment: name}}`` of the unpaired leaves of a role."""
        paths = (entry.candidate if side else entry.reference for entry in entries)
        owners = {normalise(path) for group in paths for path in group}
        found: dict[str, dict[str, str]] = {}
        for name in self._of(side, role):
            if owned := moment_of(name, owners, HOLDERS):
                found.setdefault(owned[1], {})[owned[0]] = name
        return found

    def _have_shapes(self, chosen: Sequence[Sequence[str]], entry: Entry) -> bool:
        """True if the leaves are unpaired and have the shapes of an entry's parameters."""
        return all(
            name in names and side[names[name]].shape == side[path].shape
            for (side, names), group, paths in zip(
                self.sides(), chosen, (entry.reference, entry.candidate), strict=True
            )
            for name, path in zip(group, paths, strict=True)
        )

    def by_module(self, role: Role, order: Callable[[], Order]) -> None:
        """Pairs leaves in modules of paired leaves, then whole modules, then leaves in modules of those."""
        self._beside(role)
        named, ordered = pair_modules(self._of(0, role), self._of(1, role), order)
        for name, other in named:
            self._pair([name], [other], "module")
        for name, other in ordered:
            self._pair([name], [other], "module, in the order of use")
        self._beside(role)

    def _beside(self, role: Role) -> None:
        paired = [
            (normalise(entry.reference[0]), normalise(entry.candidate[0]))
            for entry in self.entries
            if len(entry.reference) == len(entry.candidate) == 1
        ]
        for name, other in beside_paired(paired, self._of(0, role), self._of(1, role)):
            self._pair([name], [other], "module it belongs to")

    def has_choice(self, role: Role) -> bool:
        """True if several unpaired leaves of the reference share shape and dtype."""
        kinds = [(leaf.shape, leaf.dtype) for leaf in self._of(0, role).values()]
        return len(set(kinds)) < len(kinds)

    def by_use(self, role: Role, uses: Uses) -> None:
        """Pairs leaves with a fingerprint, shape and dtype that exactly one leaf of each side has in a program."""
        partners: dict[str, dict[str, str]] = {}
        for program, prints in uses.items():
            for name, other in self._used_alike(role, prints):
                partners.setdefault(name, {})[program] = other
        for name, found in partners.items():
            if len(set(found.values())) > 1:
                self._conflict(name, found)
            other = next(iter(found.values()))
            if other in self.names[1]:
                self._pair([name], [other], "use in the program")

    def _used_alike(
        self, role: Role, prints: tuple[Mapping[str, str], Mapping[str, str]]
    ) -> Iterator[tuple[str, str]]:
        holders: list[dict[tuple, list[str]]] = [{}, {}]
        for side, found in enumerate(prints):
            for name, leaf in self._of(side, role).items():
                if leaf.path in found:
                    key = (found[leaf.path], leaf.shape, leaf.dtype)
                    holders[side].setdefault(key, []).append(name)
        numbered = self._numbered_alike(role)
        for key, names in holders[0].items():
            others = holders[1].get(key, [])
            if len(names) == len(others) == 1 and not (
                numbered and _numbers(names[0]) != _numbers(others[0])
            ):
                yield names[0], others[0]

    def _numbered_alike(self, role: Role) -> bool:
        """True if both sides number their leaves equally, so that a leaf of layer 1 is in layer 1 of the other side."""
        counts = [collections.Counter(map(_numbers, self._of(side, role))) for side in (0, 1)]
        return counts[0] == counts[1] and not any(map(is_automatic, self._of(0, role)))

    def _conflict(self, name: str, found: Mapping[str, str]) -> NoReturn:
        first, second = self.names
        others = [self.leaves[1][second[other]] for other in dict.fromkeys(found.values())]
        partners = {program: second[other] for program, other in found.items()}
        raise ConflictError(first[name], partners, (self.leaves[0][first[name]], others))

    def by_shape(self, role: Role) -> None:
        """Pairs the remaining leaves by shape and dtype, nearest names first.

        A name that both sides have is left out: its shapes differ, so it needs a rule.
        """
        reference, candidate = self._of(0, role), self._of(1, role)
        kinds: dict[tuple, list[str]] = {}
        for name, leaf in reference.items():
            if name not in candidate:
                kinds.setdefault((leaf.shape, leaf.dtype), []).append(name)
        partners: dict[tuple, list[str]] = {}
        for other, twin in candidate.items():
            if other not in reference:
                partners.setdefault((twin.shape, twin.dtype), []).append(other)
        for kind, others in partners.items():
            for name, other in pair_nearest(kinds.get(kind, ()), others):
                self._pair([name], [other], "shape" if len(others) == 1 else NEAREST)


def _nearest(text: str, names: Sequence[str]) -> Sequence[str]:
    return difflib.get_close_matches(text, names, n=3, cutoff=0.3) or names[:3]


def _described(leaf: Leaf) -> str:
    return f"{normalise(leaf.path)} {leaf.dtype}{list(leaf.shape)}"


def _named(leaves: Leaves, names: Mapping[str, str]) -> dict[str, Leaf]:
    return {name: leaves[path] for name, path in names.items() if leaves[path].role is Role.PARAMS}


def _by_words(leaves: Mapping[str, Leaf]) -> dict[tuple, list[str]]:
    """Returns the names by their words, without case, separators and plural, and by shape and dtype."""
    found: dict[tuple, list[str]] = {}
    for name, leaf in leaves.items():
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
        words = tuple(word.removesuffix("s") for word in re.findall(r"[^\W\d_]+|\d+", spaced.lower()))
        if not is_automatic(name):
            found.setdefault((words, leaf.shape, leaf.dtype), []).append(name)
    return found


def _numbers(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", name))


def _same_moment(moments: Mapping[str, str], moment: str) -> str | None:
    """Returns the leaf of a moment such as ``0/mu``; else the only one with the word ``mu``; else None."""
    if moment in moments:
        return moments[moment]
    word = _word(moment)
    matching = [name for other, name in moments.items() if word and _word(other) == word]
    return matching[0] if len(matching) == 1 else None


def _word(moment: str) -> str:
    return next((part for part in reversed(moment.split("/")) if not part.isdigit()), "")
