"""Pairs the arguments and results of two lowered programs."""

import dataclasses
from collections.abc import Mapping, Sequence

from parity.builds.build import Group
from parity.builds.tree import is_counter
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.order import first_uses
from parity.cases.recipe import KEY
from parity.compare.side import INPUT, STATE, Side
from parity.prove import UnpairedPositions, argument_fingerprints
from parity.prove.counters import increment
from parity.prove.frontier import MOST_ENTRIES, Frontier, FrontierSide
from parity.prove.numbering import users
from parity.prove.proof import NO_UNPAIRED
from parity.prove.search import side_of

__all__ = [
    "Pairing",
    "Unmatched",
    "pair_positions",
    "result_positions",
    "state_arguments",
    "state_fingerprints",
    "state_order",
    "unmatched_frontier",
    "without_counters",
]

SIDES = ("reference", "candidate")
BY_LEAF = frozenset(str(group) for group in Group if group.by_leaf)
SILENT = (
    "no draw of one side depends on the streams of `rngs`: it is in evaluation mode or deterministic, or draws "
    "from other keys"
)

Positions = list[tuple[int, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unmatched:
    """An argument or result that only one side has.

    Args:
        name: kind and path, such as ``state params/norm/scale``.
        side: 0 for the reference, 1 for the candidate.
        position: in ``@main`` of that side.
        read: True for an argument that the program reads, False for a result.
    """

    name: str
    side: int
    position: int
    read: bool

    def sentence(self) -> str:
        """Returns the name, and the side that has it."""
        return f"{self.name}: {self.verb}"

    @property
    def verb(self) -> str:
        """The side that has it, as text."""
        silent = f"; {SILENT}" if self.name == f"{INPUT} {KEY}" else ""
        return f"only the {SIDES[self.side]} {'reads' if self.read else 'returns'} it{silent}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairing:
    """Positions in ``@main`` that are paired.

    Args:
        arguments, results: (reference, candidate) pairs.
        unmatched: arguments and results that only one side has; a proof requires that there are none.
        alone: RNG state that only one side reads or returns, which the map leaves without a partner; and counters.
    """

    arguments: Positions
    results: Positions
    unmatched: tuple[Unmatched, ...]
    alone: UnpairedPositions = NO_UNPAIRED


def pair_positions(
    reference: Side, candidate: Side, weights: WeightMap, moved: Sequence[Entry] = ()
) -> Pairing:
    """Pairs the arguments and results of two sides whose map moves no numbers.

    Args:
        reference, candidate: the two sides.
        weights: a map with `WeightMap.is_identity`.
        moved: entries whose arguments and results are left out.
    """
    names = {entry.candidate[0]: entry.reference[0] for entry in weights.entries if entry not in moved}
    taken = [{path for entry in moved for path in paths(entry)} for paths in (_ours, _theirs)]
    read = (_read(reference, {}), _read(candidate, names))
    given = (result_positions(reference, {}), result_positions(candidate, names))
    alone_read, read_names = _apart(_but_leaves(read, taken), weights, "state")
    alone_returned, returned_names = _apart(_but_leaves(given, taken), weights, *BY_LEAF)
    arguments, read = _match(read_names[0], read_names[1], read=True)
    results, returned = _match(returned_names[0], returned_names[1], read=False)
    return Pairing(
        arguments=arguments,
        results=results,
        unmatched=(*read, *returned),
        alone=UnpairedPositions(arguments=alone_read, results=alone_returned),
    )


def without_counters(pairing: Pairing, sides: tuple[Side, Side], weights: WeightMap) -> Pairing:
    """Returns the pairs without counters of two integer types that both sides only increment, by the same number.

    `parity.prove.counters` shows why they stay equal; the rest of the programs is still compared.

    Args:
        pairing: of all positions.
        sides: the two sides.
        weights: their map.
    """
    arguments, results = pairing.arguments, pairing.results
    taken: tuple[list[int], list[int]] = ([], [])
    given: tuple[list[int], list[int]] = ([], [])
    for entry in weights.entries:
        paths = entry.reference[0], entry.candidate[0]
        leaves = [side.build.leaves[path] for side, path in zip(sides, paths, strict=True)]
        if not all(map(is_counter, leaves)) or leaves[0].dtype == leaves[1].dtype:
            continue
        read = tuple(state_arguments(side).get(path, -1) for side, path in zip(sides, paths, strict=True))
        written = tuple(
            result_positions(side, {}).get(f"{Group.STATE} {path}", -1)
            for side, path in zip(sides, paths, strict=True)
        )
        if read not in arguments or written not in results:
            continue
        steps = [increment(side.operations, *at) for side, *at in zip(sides, read, written, strict=True)]
        widths = {leaf.dtype.removeprefix("u") for leaf in leaves}
        if None in steps or len({*steps}) > 1 or len(widths) > 1:
            continue
        arguments = [pair for pair in arguments if pair != read]
        results = [pair for pair in results if pair != written]
        for side in (0, 1):
            taken[side].append(read[side])
            given[side].append(written[side])
    return dataclasses.replace(
        pairing,
        arguments=arguments,
        results=results,
        alone=dataclasses.replace(
            pairing.alone,
            arguments=_joined(pairing.alone.arguments, taken),
            results=_joined(pairing.alone.results, given),
            counters=len(taken[0]),
        ),
    )


def _ours(entry: Entry) -> tuple[str, ...]:
    return entry.reference


def _theirs(entry: Entry) -> tuple[str, ...]:
    return entry.candidate


def _but_leaves(
    sides: tuple[dict[str, int], dict[str, int]], taken: Sequence[set[str]]
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns names such as ``gradients PATH``, except those of some leaves."""
    left, right = (
        {
            name: position
            for name, position in names.items()
            if name.partition(" ")[0] not in BY_LEAF or name.partition(" ")[2] not in gone
        }
        for names, gone in zip(sides, taken, strict=True)
    )
    return left, right


def _joined(
    alone: tuple[tuple[int, ...], tuple[int, ...]], more: tuple[list[int], list[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (*alone[0], *more[0]), (*alone[1], *more[1])


def _apart(
    sides: tuple[dict[str, int], dict[str, int]], weights: WeightMap, *holders: str
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], list[dict[str, int]]]:
    """Splits off the names of one-sided leaves; returns their positions, and the other names."""
    alone = [{f"{holder} {path}" for holder in holders for path in paths} for paths in weights.alone]
    left, right = (
        tuple(position for name, position in names.items() if name in gone)
        for names, gone in zip(sides, alone, strict=True)
    )
    rest = [
        {name: position for name, position in names.items() if name not in gone}
        for names, gone in zip(sides, alone, strict=True)
    ]
    return (left, right), rest


def _read(side: Side, names: Mapping[str, str]) -> dict[str, int]:
    """Returns the position in ``@main`` of each argument that the program reads, paths of the state renamed."""
    return {
        f"{kind} {names.get(path, path) if kind == STATE else path}": position
        for position, (kind, path) in side.read_arguments.items()
    }


def result_positions(side: Side, names: Mapping[str, str]) -> dict[str, int]:
    """Returns the position of each result by group and path, paths renamed."""
    return {f"{group} {names.get(path, path)}": at for at, (group, path) in enumerate(side.results)}


def state_fingerprints(side: Side) -> dict[str, str]:
    """Returns ``{path: fingerprint}`` of how the program uses each state leaf that it reads."""
    prints = argument_fingerprints(side.lowered)
    return {path: prints[position] for path, position in state_arguments(side).items()}


def state_order(side: Side) -> dict[str, tuple[int, ...]]:
    """Returns ``{path: place}`` of the first use of each state leaf in the traced program."""
    paths = side.state_paths
    return {
        paths[index]: place for index, place in first_uses(side.traced.jaxpr).items() if index < len(paths)
    }


def state_arguments(side: Side) -> dict[str, int]:
    """Returns the position in ``@main`` of each state leaf that the program reads."""
    return {path: position for position, (kind, path) in side.read_arguments.items() if kind == STATE}


def unmatched_frontier(pairing: Pairing, sides: tuple[Side, Side]) -> tuple[Frontier, ...]:
    """Returns the arguments and results of one side as differences, each with the operation that uses it first.

    Args:
        pairing: with `Pairing.unmatched`.
        sides: the two sides.
    """
    groups: dict[tuple[str, FrontierSide | None], list[Unmatched]] = {}
    readers = [users(side.operations) for side in sides]
    for one in pairing.unmatched:
        groups.setdefault((one.verb, _used_by(one, sides[one.side], readers[one.side])), []).append(one)
    return tuple(
        Frontier(
            where=f"{ones[0].name}{f' and {len(ones) - 1} more' if len(ones) > 1 else ''}",
            differences=(verb,),
            reference=None if ones[0].side else place,
            candidate=place if ones[0].side else None,
        )
        for (verb, place), ones in list(groups.items())[:MOST_ENTRIES]
    )


def _used_by(one: Unmatched, side: Side, readers: Mapping[int, Sequence]) -> FrontierSide | None:
    """Returns the first operation that reads an argument, or the one that makes a result."""
    body = side.operations.body
    if one.read:
        found = (op for op, _ in readers[body.parameters[one.position]] if op is not None)
    else:
        found = (op for op in body.ops if body.outputs[one.position] in op.results)
    return side_of(next(found, None), 0)


def _match(
    reference: Mapping[str, int], candidate: Mapping[str, int], *, read: bool
) -> tuple[Positions, list[Unmatched]]:
    pairs = [(reference[name], candidate[name]) for name in reference if name in candidate]
    unmatched = [
        Unmatched(name=name, side=side, position=names[name], read=read)
        for side, names in enumerate((reference, candidate))
        for name in sorted(set(names) - set((candidate, reference)[side]))
    ]
    return pairs, unmatched
