"""Infers a weight map from the leaves of two states, the most reliable evidence first."""

import collections
import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from parity.builds.tree import Leaf, Role, is_counter
from parity.builds.weights.map import (
    AGAINST_USE,
    FOLLOWS,
    GUESSED,
    NEAREST,
    RELATED,
    USED,
    USED_ALONE,
    ConflictError,
    Entry,
    MapError,
    Rule,
    RuleError,
    WeightMap,
    normalise,
    strip_container,
)
from parity.builds.weights.modules import (
    Order,
    Programs,
    Uses,
    averages,
    beside_paired,
    clones,
    copied,
    moment_of,
    pair_in_order,
    pair_modules,
    pair_nearest,
    short_names,
)
from parity.builds.weights.names import is_automatic, name_words, named, numbers, prefer_names, related
from parity.builds.weights.transforms import Identity, Stack, Transform, Unstack
from parity.verdicts import grouped

Leaves = Mapping[str, Leaf]


def infer(
    reference: Leaves, candidate: Leaves, rules: Sequence[Rule] = (), programs: Programs = Programs()
) -> WeightMap:
    """Pairs all leaves of two states.

    Args:
        rules: explicit pairings, tried first.
        programs: facts on leaves from the programs of both sides.

    Returns:
        The map; RNG leaves without a partner are in `WeightMap.alone`.

    Raises:
        ConflictError: two programs pair a leaf with different leaves of the other side.
        MapError: other leaves have no partner.
        RuleError: a rule pairs nothing, or its transform does not fit.
    """
    search = _Search(reference, candidate, programs)
    search.set_clone_aside()
    search.by_rules(rules)
    for role in Role:
        for matcher in (search.by_parameter, search.by_name, search.fold, search.by_name, search.by_words):
            matcher(role)
        if programs.use and search.has_choice(role):
            search.by_use(role, programs.use())
        search.by_related(role)
        search.by_module(role)
        search.by_shape(role)
        search.unfold()
    search.join_roles()
    for matcher in (search.by_parameter, search.by_name, search.by_words, search.by_related):
        matcher(Role.STATE)
    search.by_last_name(Role.STATE)
    left = [[side.leaf(name) for name in side.names] for side in search.sides]
    missing = [[leaf for leaf in leaves if leaf.role is not Role.RNG] for leaves in left]
    if any(missing):
        raise MapError(*missing, hints=search.idle)
    if search.idle:
        raise RuleError(search.idle[0])
    first, second = (tuple(sorted(leaf.path for leaf in leaves)) for leaves in left)
    entries = tuple(sorted(search.entries, key=lambda entry: entry.reference))
    return WeightMap(entries=entries, alone=(first, second))


_Fold = tuple[tuple[str, ...], int, str]
"""Layers held as one leaf: their names or paths, the axis that counts them, and a note on the choice."""


class _Side:
    """One side's leaves."""

    def __init__(self, label: str, leaves: Leaves):
        self.label, self.leaves = label, dict(leaves)
        self.paths = {normalise(path): path for path in leaves}
        self.names = dict(self.paths)  # of unpaired leaves
        self.folded: dict[str, _Fold] = {}
        if len(self.names) < len(leaves):
            clashes = [
                f"{path} and {self.names[normalise(path)]} are both {normalise(path)}"
                for path in leaves
                if path not in self.names.values()
            ]
            raise ValueError(f"weight map: without their holders {'; '.join(clashes)}; rename one of them")
        self.parameters = {
            name: self.leaf(name) for name in self.names if self.leaf(name).role is Role.PARAMS
        }
        self.copies = copied(self.parameters)
        self.joined = False

    @property
    def own(self) -> int:
        """The number of elements of parameters without copies, which stacks and joined leaves do not change."""
        return self.size(self.parameters.keys() - self.copies)

    def size(self, names: Iterable[str]) -> int:
        return sum(self.leaf(name).size for name in names)

    def leaf(self, name: str) -> Leaf:
        return self.leaves[self.paths[name]]

    def role(self, name: str) -> Role:
        """Returns the role of a leaf; a copy of a parameter, such as an average in a Param of NNX, counts as state."""
        role = self.leaf(name).role
        return Role.STATE if name in self.copies or (self.joined and role is Role.OPTIMIZER) else role

    def unpaired(self, role: Role) -> dict[str, Leaf]:
        """Returns the unpaired leaves of a role by name."""
        return {name: self.leaf(name) for name in self.names if self.role(name) is role}

    def fold(self, name: str, members: Sequence[str], axis: int, note: str) -> None:
        """Holds unpaired leaves as one that stacks them along an axis, in the place of the first."""
        leaf = self.leaf(members[0])
        self.leaves[name] = dataclasses.replace(
            leaf, shape=(*leaf.shape[:axis], len(members), *leaf.shape[axis:]), logical_axes=None
        )
        self.folded[name] = tuple(self.names.pop(member) for member in members), axis, note
        self.names[name] = self.paths[name] = name

    def described(self, names: Iterable[str]) -> str:
        leaves = (self.leaf(name) for name in names)
        return ", ".join(f"{normalise(leaf.path)} {leaf.dtype}{list(leaf.shape)}" for leaf in leaves)


class _Search:
    """Matches leaves step by step; matched leaves are removed from the names of both sides."""

    def __init__(self, reference: Leaves, candidate: Leaves, programs: Programs):
        self.programs = programs
        self.sides = (_Side("reference", reference), _Side("candidate", candidate))
        left, right = self.sides
        gaps = left.own - right.own, left.size(left.parameters) - right.size(right.parameters)
        if abs(gaps[1]) < abs(gaps[0]):  # then a copy is a parameter that happens to be named like one
            for side in self.sides:
                side.copies = set()
        self.idle: list[str] = []
        self.shifted: set[tuple[str, ...]] = set()
        self.entries: list[Entry] = []

    def set_clone_aside(self) -> None:
        """Counts a module of one side as copies if another has its parameters and the other side holds them as state.

        Parameters and their averages are used in the same order on both sides. A side that does
        not use both may read the wrong module. Either side may lack some leaves.
        """
        fewer, more = sorted(self.sides, key=lambda side: side.own)
        gap = more.own - fewer.own
        found = [pair for pair in clones(more.parameters) if 2 * abs(more.size(pair[0]) - gap) < gap]
        state = fewer.unpaired(Role.STATE)
        if len(found) != 1:
            return
        shapes = collections.Counter(more.leaf(name).shape for name in found[0][0])
        moments = {name: owned for name in state if (owned := moment_of(name, fewer.parameters))}
        followed = {
            name: (module, owners[0])
            for name, (module, owners) in averages(state, fewer.parameters).items()
            if len(owners) == 1
        }
        modules = grouped(followed.items(), lambda one: one[1][0]).values()

        def in_common(names: Iterable[str]) -> int:
            return (collections.Counter(state[name].shape for name in names) & shapes).total()

        held = max([moments, *map(dict, modules)], key=in_common)
        if 2 * in_common(held) <= max(len(held), shapes.total()):
            return
        places = dict(zip(self.sides, self.programs.order(), strict=True))

        def first_use(side: _Side, names: Iterable[str]) -> float:
            return min(places[side].get(side.paths[name], math.inf) for name in names)

        own, average = first_use(fewer, (owner for _, owner in held.values())), first_use(fewer, held)
        early, late = sorted(found[0], key=functools.partial(first_use, more))
        if all(map(math.isfinite, (own, average, first_use(more, early), first_use(more, late)))):
            more.copies = set(late if own < average else early)

    def join_roles(self) -> None:
        """Counts the optimizers' leaves that are left as state, because roles may follow from names of fields."""
        for side in self.sides:
            side.joined = True

    def _of(self, side: int, role: Role) -> dict[str, Leaf]:
        return self.sides[side].unpaired(role)

    def _with(self, *groups: Iterable[Any]) -> Iterator[tuple[_Side, Any]]:
        """Yields each item of a group for the reference and one for the candidate, with its side."""
        for side, group in zip(self.sides, groups, strict=True):
            for item in group:
                yield side, item

    def _pair(
        self,
        reference: Iterable[str],
        candidate: Iterable[str],
        matched_by: str,
        transform: Transform = Identity(),
    ) -> None:
        pair: list[tuple[str, ...]] = []
        for side, names, join in zip(self.sides, (reference, candidate), (Stack, Unstack), strict=True):
            paths = tuple(side.names.pop(name) for name in names)
            if paths[0] in side.folded:
                paths, axis, note = side.folded.pop(paths[0])
                transform, matched_by = join(axis, len(paths)), f"{matched_by}{note}"
            pair.append(paths)
        left, right = pair
        role = self.sides[0].leaves[left[0]].role
        self.entries.append(
            Entry(reference=left, candidate=right, transform=transform, role=role, matched_by=matched_by)
        )

    def by_rules(self, rules: Sequence[Rule]) -> None:
        """Pairs the leaves that rules name."""
        for rule in rules:
            named = [found for name in self.sides[0].paths if (found := self._named(rule, name))]
            if not named:
                text = f"{rule.reference[0]!r} matches no leaf of the reference"
                raise RuleError(self._idle(rule, text, (rule.reference[0], rule.candidate[0])))
            mistakes = [self._mistake(*found) for found in named]
            if all(mistakes) and mistakes[0]:
                text, name = mistakes[0]
                self.idle.append(self._idle(rule, text, (name, name)))
            for found, mistake in zip(named, mistakes, strict=True):
                if not mistake and all(name in side.names for side, name in self._with(*found)):
                    self._check_shapes(rule, *found)
                    self._pair(*found, "rule", rule.transform)

    def _mistake(self, *found: Sequence[str]) -> tuple[str, str] | None:
        """Returns why a rule cannot pair leaves, and one that has no partner; None if it can.

        The rule of a parameter may also match its moments.
        """
        named = list(self._with(*found))
        for side, name in named:
            if name not in side.paths:
                return f"it pairs {found[0][0]}, but the {side.label} has no leaf {name}", name
        roles = {side.role(name): f"{name} of role {side.role(name)}" for side, name in named}
        if len(roles) > 1 and Role.PARAMS in roles:
            return f"it pairs {' and '.join(roles.values())}", found[0][0]
        return None

    def _idle(self, rule: Rule, why: str, texts: Sequence[str]) -> str:
        """Returns a message that a rule is wrong, with the leaves of the most similar names on both sides."""
        near = []
        for side, text in zip(self.sides, texts, strict=True):
            names = list(side.paths)
            if close := difflib.get_close_matches(text, names, n=3, cutoff=0.3) or names[:3]:
                near.append(f"in the {side.label} {side.described(close)}")
        rules = f"weight rule {', '.join(rule.reference)} -> {', '.join(rule.candidate)}"
        return f"{rules}: {why}; nearest: {'; '.join(near)}"

    def _named(self, rule: Rule, name: str) -> tuple[list[str], list[str]] | None:
        """Returns the leaves of both sides that a rule pairs; None if its pattern does not match ``name``."""
        pattern, path = rule.reference[0], self.sides[0].paths[name]
        forms = (re.fullmatch(pattern, form) for form in (name, strip_container(path), path))
        if not (match := next(filter(None, forms), None)):
            return None
        reference = [name, *(normalise(match.expand(other)) for other in rule.reference[1:])]
        return reference, [normalise(match.expand(template)) for template in rule.candidate]

    def _check_shapes(self, rule: Rule, reference: Sequence[str], targets: Sequence[str]) -> None:
        """Raises a `RuleError` unless a rule's transform maps the shapes of one side to those of the other."""
        left, right = self.sides
        given, wanted = (
            [left.leaf(name).shape for name in reference],
            [right.leaf(name).shape for name in targets],
        )
        try:
            got = rule.transform.shapes(given)  # without arrays: published sizes would fill the memory
        except (ValueError, IndexError) as error:
            got = [str(error)]
        if got != wanted:
            raise RuleError(
                f"weight rule for {reference}: {rule.transform} of {given} gives {got}, expected {wanted} of {targets} "
                f"(reference {left.described(reference)}; candidate {right.described(targets)}); correct the "
                "transform or the paths"
            )

    def _alike(
        self, role: Role, key: Callable[[int, str], Hashable]
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Yields the unpaired leaves of both sides that share a key, a function of side and name; None is no key."""
        left, right = (grouped(self._of(side, role), functools.partial(key, side)) for side in (0, 1))
        for shared, names in left.items():
            if shared is not None and shared in right:
                yield names, right[shared]

    def _pair_alike(self, role: Role, key: Callable[[int, str], Hashable], matched_by: str) -> None:
        """Pairs the leaves with a key that one leaf of each side has, unless their lists count differently."""
        for names, others in self._alike(role, key):
            if len(names) == len(others) == 1 and _without_numbers(names[0]) not in self.shifted:
                self._pair(names, others, matched_by)

    def _leaf(self, side: int, name: str) -> Leaf:
        return self.sides[side].leaf(name)

    def by_name(self, role: Role) -> None:
        self.shifted = self._shifted(role)
        self._pair_alike(role, lambda side, name: (name, self._leaf(side, name).shape), "name")

    def by_last_name(self, role: Role) -> None:
        """Pairs leaves that alone have the last part of a name, such as ``count``, and a shape."""
        self.shifted = set()

        def key(side: int, name: str) -> Hashable:
            return name.rpartition("/")[2], _kind(self._leaf(side, name))

        self._pair_alike(role, key, "shape")

    def _shifted(self, role: Role) -> set[tuple[str, ...]]:
        """Returns the names, without numbers, of equally long lists that count from another number on each side."""
        shifted = set()
        for pair in self._alike(role, lambda _, name: _without_numbers(name)):
            one, two = ([tuple(map(int, numbers(name))) for name in names] for names in pair)
            if len(one) == len(two) and min(one) != min(two):
                shifted.add(_without_numbers(pair[0][0]))
        return shifted

    def by_words(self, role: Role) -> None:
        """Pairs leaves whose names have equal words, such as ``layer_0/pre_norm`` and ``layers/0/PreNorm``."""

        def words(side: int, name: str) -> Hashable:
            leaf = self._leaf(side, name)
            return None if is_automatic(name) else (name_words(name), leaf.shape, leaf.dtype)

        self._pair_alike(role, words, "words of the name")

    def fold(self, role: Role) -> None:
        """Holds the leaves of numbered layers as one, if the other side has only their stack, under any name."""
        for side, other in (self.sides, self.sides[::-1]):
            leaves, stacks = side.unpaired(role), other.unpaired(role)
            surplus = collections.Counter(map(_kind, leaves.values()))
            surplus.subtract(map(_kind, stacks.values()))
            groups = _stackable(leaves, stacks)
            kinds = {name: _kind(leaves[members[0]]) for name, (members, *_) in groups.items()}
            held: dict[tuple, int] = collections.Counter()
            for name, (members, *_) in groups.items():
                held[kinds[name]] += len(members)
            for name, (members, axis, note) in groups.items():
                has_stack = name in stacks or held[kinds[name]] == surplus[kinds[name]]
                if has_stack and name not in side.paths:
                    side.fold(name, members, axis, note)

    def unfold(self) -> None:
        """Holds layers one by one again if their stack has no partner."""
        for side in self.sides:
            for name, (paths, *_) in side.folded.items():
                del side.names[name]
                side.names |= {normalise(path): path for path in paths}
            side.folded.clear()

    def by_parameter(self, role: Role) -> None:
        """Pairs moments like their parameters, which are already paired, regardless of their holders.

        The longest parameter name that fits owns a moment. Averages of parameters count as moments. The only moment of
        a parameter may have any name.
        """
        if role not in (Role.OPTIMIZER, Role.STATE):
            return
        entries = [entry for entry in self.entries if entry.role is Role.PARAMS]
        moments = self._moments(0, role, entries), self._moments(1, role, entries)
        for entry in entries:
            held = [
                [side.get(normalise(path), {}) for path in paths]
                for side, paths in zip(moments, (entry.reference, entry.candidate), strict=True)
            ]
            for label in held[0][0]:
                if all(label in each for side in held for each in side):
                    chosen = [[each[label] for each in side] for side in held]
                    if self._have_shapes(chosen, entry):
                        self._pair(chosen[0], chosen[1], FOLLOWS, entry.transform)

    def _moments(self, side: int, role: Role, entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
        """Returns ``{parameter: {moment: name}}`` of the unpaired leaves of a role, see `_labelled`.

        The only moment of several parameters with equal names in their modules may belong to any of them, if their
        partners have equal names, too.
        """
        paths = [path for entry in entries for path in (entry.candidate if side else entry.reference)]
        leaves, unpaired = self.sides[side].leaves, self._of(side, role)
        owners, parts = short_names(map(normalise, paths))
        parts = parts if role is Role.OPTIMIZER else {}
        modules = averages(unpaired, {normalise(path): leaves[path] for path in paths})
        claims, paired = [], {}
        for entry in entries:
            names = [normalise(path).partition("/")[2] for path in (*entry.reference, *entry.candidate)]
            for path in entry.candidate if side else entry.reference:
                paired[normalise(path)] = (*names, str(entry.transform))
        for name in unpaired:
            if owned := moment_of(name, owners):
                claims.append((name, owned[0], _word(owned[0]), (owners[owned[1]],)))
            elif (owned := moment_of(name, parts)) and (held := self._fed(side, name, owned[1], parts)):
                claims.append((name, owned[0], _word(owned[0]), held))
            elif name in modules:
                claims.append((name, modules[name][0], "", modules[name][1]))
        counts = collections.Counter(claim[2:] for claim in claims)
        found: dict[str, dict[str, str]] = {}
        for name, moment, word, parameters in claims:
            pairings = {paired[owner] for owner in parameters}
            for owner in (
                parameters if len(parameters) == 1 or counts[word, parameters] == len(pairings) == 1 else ()
            ):
                found.setdefault(owner, {})[moment] = name
        return {owner: _labelled(held) for owner, held in found.items()}

    def _fed(
        self, side: int, moment: str, part: str, owners: Mapping[str, tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Returns the parameter with the name of a part whose module alone a moment feeds.

        If there is none, or several, all parameters of that name; none if the part is a leaf without a module.
        """
        has_module, held = "/" in part, owners[part]
        if has_module and len(held) == 1:
            return held
        fed, path = self.programs.feeding()[side], self.sides[side].paths[moment]
        found = tuple(each for each in held if path in fed.get(each.partition("/")[0], ()))
        return found if len(found) == 1 else held if has_module else ()

    def _have_shapes(self, chosen: Sequence[Sequence[str]], entry: Entry) -> bool:
        """True if the leaves are unpaired and have the shapes of an entry's parameters.

        If the parameters are equal, so may be leaves of another shape, such as the rows and columns of Adafactor.
        """
        if any(name not in side.names for side, name in self._with(*chosen)):
            return False
        sides = tuple(zip(self.sides, chosen, (entry.reference, entry.candidate), strict=True))
        shapes = [[side.leaf(name).shape for name in names] for side, names, _ in sides]
        owners = [[side.leaves[path].shape for path in paths] for side, _, paths in sides]
        return shapes == owners or (isinstance(entry.transform, Identity) and shapes[0] == shapes[1])

    def by_module(self, role: Role) -> None:
        """Pairs leaves in modules of paired leaves, then whole modules.

        Modules of equal parameters and states come before those of equal parameters only.
        """
        paired = [
            (normalise(entry.reference[0]), normalise(entry.candidate[0]))
            for entry in self.entries
            if len(entry.reference) == len(entry.candidate) == 1
        ]
        for name, other in beside_paired(paired, self._of(0, role), self._of(1, role)):
            self._pair([name], [other], "module it belongs to")
        states = (self._of(0, Role.STATE), self._of(1, Role.STATE)) if role is Role.PARAMS else ({}, {})
        for further in (states, ({}, {})):
            for how, pairs in pair_modules(
                self._of(0, role), self._of(1, role), self._anchored, self.programs.near, further
            ):
                for name, other in pairs:
                    self._pair([name], [other], how)

    def _anchored(self) -> Order:
        """Returns places in the order of use that begin with the place, in the reference, of the paired leaf before."""
        order = self.programs.order()
        partners = {one.candidate[0]: one.reference[0] for one in self.entries}
        known = ({path: path for path in partners.values()}, partners)
        anchored: list[dict[str, tuple[float, ...]]] = [{}, {}]
        for ranks, pairs, found in zip(order, known, anchored, strict=True):
            before: float = -1
            for path in sorted(ranks, key=ranks.__getitem__):
                before = order[0].get(pairs.get(path, ""), before)
                found[path] = (before, ranks[path])
        return anchored[0], anchored[1]

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
        chosen = {name: next(iter(found.values())) for name, found in partners.items()}
        for names in grouped(chosen, lambda name: _kind(self._leaf(0, name))).values():
            used = {name: chosen[name] for name in names}
            sure = named(used)
            for name, other in prefer_names(used).items():
                if other in self.sides[1].names:
                    how = USED if name in sure else USED_ALONE
                    self._pair([name], [other], how if other == used[name] else f"{AGAINST_USE}{used[name]}")

    def _used_alike(
        self, role: Role, prints: tuple[Mapping[str, str], Mapping[str, str]]
    ) -> Iterator[tuple[str, str]]:
        def use(side: int, name: str) -> Hashable:
            leaf = self._leaf(side, name)
            return (prints[side][leaf.path], leaf.shape, leaf.dtype) if leaf.path in prints[side] else None

        numbered = self._numbered_alike(role)
        for names, others in self._alike(role, use):
            if len(names) == len(others) == 1 and not (numbered and numbers(names[0]) != numbers(others[0])):
                yield names[0], others[0]

    def _numbered_alike(self, role: Role) -> bool:
        """True if both sides number their leaves equally, so that a leaf of layer 1 is in layer 1 of the other side."""
        counts = [collections.Counter(map(numbers, self._of(side, role))) for side in (0, 1)]
        return counts[0] == counts[1] and not any(map(is_automatic, self._of(0, role)))

    def _conflict(self, name: str, found: Mapping[str, str]) -> NoReturn:
        left, right = self.sides
        others = [right.leaf(other) for other in dict.fromkeys(found.values())]
        partners = {program: right.paths[other] for program, other in found.items()}
        raise ConflictError(left.paths[name], partners, (left.leaf(name), others))

    def by_related(self, role: Role) -> None:
        """Pairs leaves of one kind and number if all of their names are related."""
        if not self._numbered_alike(role):
            return
        for names, others in self._alike(
            role, lambda side, name: (*_kind(self._leaf(side, name)), numbers(name))
        ):
            pairs = related(names, others)
            if len(pairs) == len(names) == len(others) > 1:
                for name, other in pairs.items():
                    self._pair([name], [other], RELATED)

    def by_shape(self, role: Role) -> None:
        """Pairs the remaining leaves by shape and dtype, in the order of use; nearest names first if some are missing.

        A name that both sides have is left out: its shapes differ, so it needs a rule.
        """
        sides = self._of(0, role), self._of(1, role)

        def kind(side: int, name: str) -> Hashable:
            return None if name in sides[1 - side] else _kind(sides[side][name])

        for names, others in [*self._alike(role, kind)]:
            if len(names) == len(others) > 1:
                held = zip(sides, (names, others), strict=True)
                left, right = ({name: [leaves[name]] for name in each} for leaves, each in held)
                how, pairs = pair_in_order(left, right, self._anchored(), self.programs.near)
            else:
                how, pairs = "shape" if len(others) == 1 else NEAREST, dict(pair_nearest(names, others))
            for name, other in pairs.items():
                self._pair([name], [other], how)


def _layer_groups(leaves: Mapping[str, Leaf]) -> dict[str, list[str]]:
    """Returns ``{name without its layer number: members in order}`` for complete runs 0, 1, 2, ..."""
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for name in leaves:
        parts = name.split("/")
        for at, part in enumerate(parts):
            if part.isdigit():
                around = ("/".join(parts[:at]), "/".join(parts[at + 1 :]))
                groups.setdefault(around, {})[int(part)] = name
    return {
        "/".join(filter(None, around)): [members[index] for index in range(len(members))]
        for around, members in groups.items()
        if set(members) == set(range(len(members)))
    }


def _stackable(leaves: Mapping[str, Leaf], stacks: Mapping[str, Leaf]) -> dict[str, _Fold]:
    """Returns the layers that a stack may hold, by their name without the number.

    A stack of that name comes before others. Each leaf is in one run, by the outermost number that fits. The note says
    that the run, or the axis, is not the only one.
    """
    fitting: dict[str, _Fold] = {}
    for name, members in _layer_groups(leaves).items():
        layers = [leaves[member] for member in members]
        axes = _stack_axes(stacks.get(name), layers)
        if len(axes) > 1:
            fitting[name] = (
                tuple(members),
                axes[0],
                f", {GUESSED} {axes[0]} of {', '.join(map(str, axes))} that fit",
            )
            continue
        others = axes or {axis for stack in stacks.values() for axis in _stack_axes(stack, layers)}
        if len(others) == 1:
            fitting[name] = tuple(members), min(others), ""
    uses = collections.Counter(member for members, *_ in fitting.values() for member in members)
    found: dict[str, _Fold] = {}
    taken: set[str] = set()
    for name in sorted(fitting, key=lambda name: name not in stacks):
        members, axis, note = fitting[name]
        if taken.isdisjoint(members):
            taken.update(members)
            if name not in stacks and any(uses[member] > 1 for member in members):
                note = f", {GUESSED} {axis}, of several numbers in the names"
            found[name] = members, axis, note
    return found


def _stack_axes(stacked: Leaf | None, members: Sequence[Leaf]) -> list[int]:
    """Returns the axes along which ``stacked`` may hold ``members``; logical axis names settle ambiguous sizes."""
    if stacked is None or len({member.shape for member in members}) != 1:
        return []
    shape, rank = stacked.shape, len(stacked.shape)
    fitting = [
        axis
        for axis in range(rank)
        if shape[axis] == len(members) and shape[:axis] + shape[axis + 1 :] == members[0].shape
    ]
    names, member_names = stacked.logical_axes, members[0].logical_axes
    if names is not None and member_names is not None:
        named = [axis for axis in fitting if names[:axis] + names[axis + 1 :] == member_names]
        fitting = named or fitting
    return fitting


def _without_numbers(name: str) -> tuple[str, ...]:
    return tuple(word for word in name_words(name) if word.isalpha())


def _kind(leaf: Leaf) -> tuple:
    """Returns the shape and dtype of a leaf; the dtype of a counter may differ."""
    return (leaf.shape, None if is_counter(leaf) else leaf.dtype)


def _labelled(moments: Mapping[str, str]) -> dict[str, str]:
    """Returns the moments of a parameter by their words, such as ``mu`` for ``0/mu``; the only one has any name."""
    words = collections.Counter(map(_word, moments))
    names = {moment: word if words[word := _word(moment)] == 1 else moment for moment in moments}
    return {"" if len(moments) == 1 else names[moment]: name for moment, name in moments.items()}


def _word(moment: str) -> str:
    return next((part for part in reversed(moment.split("/")) if not part.isdigit()), "")
