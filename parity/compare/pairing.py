"""Pairs the arguments and results of two lowered programs, under a weight map that may move numbers."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from parity.builds.build import Group
from parity.builds.tree import Role, is_counter
from parity.builds.weights.map import Entry, WeightMap, normalise
from parity.builds.weights.transforms import Identity
from parity.cases.recipe import KEY
from parity.compare.side import INPUT, STATE, Side
from parity.ir.functions import mentions
from parity.ir.jaxprs import first_uses
from parity.ir.location import SourceLocation, called_frames
from parity.ir.stablehlo.operations import names_of
from parity.ir.stablehlo.program import Kind, Op
from parity.prove import UnpairedPositions, WeightView, argument_fingerprints, loop_counts_differ
from parity.prove.counters import increment
from parity.prove.frontier import MOST_ENTRIES, Frontier, FrontierSide
from parity.prove.numbering import users
from parity.prove.proof import NO_UNPAIRED
from parity.prove.search import side_of
from parity.values.rng.demand import Demand
from parity.verdicts import SIDES, grouped

LEFT_OUT = "an input that one side leaves out"
BY_LEAF = frozenset(str(group) for group in Group if group.by_leaf)
SILENT = (
    "no draw of one side depends on the streams of `rngs`: it is in evaluation mode or deterministic, or draws "
    "from other keys"
)

PRODUCTS = names_of("convolution", "dot_general")
MOVES = names_of("broadcast_in_dim", "convert", "reshape", "transpose")
PLAIN = MOVES | PRODUCTS | names_of("add", "divide", "multiply", "subtract")
"""Operations that do not distinguish leaves: queries are scaled, or keys."""
MOST_VALUES = 64
"""Maximum number of values that a search for the operations that process a leaf visits."""

Name = tuple[str, str]
"""Kind of an argument or group of a result, and path."""
Positions = list[tuple[int, int]]
Alone = tuple[tuple[int, ...], tuple[int, ...]]
"""Positions that only the reference has, and only the candidate."""
Step = tuple[str, tuple[int, ...]]


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

    @property
    def in_place(self) -> bool:
        """True if both sides have the same arguments and results, position by position."""
        pairs = (*self.arguments, *self.results)
        return (
            not self.unmatched and self.alone == NO_UNPAIRED and all(left == right for left, right in pairs)
        )


def pair_programs(reference: Side, candidate: Side, weights: WeightMap) -> Pairing | None:
    """Pairs arguments and results of two programs under any map, without counters that no result needs.

    Returns:
        The pairs; None if the map moves numbers and loop counts differ, or a transform is not one of
        `parity.builds.weights.transforms`.
    """
    sides = (reference, candidate)
    counters = [entry for entry in weights.entries if _counts_equally(entry, sides)]
    others = dataclasses.replace(
        weights,
        entries=tuple(entry for entry in weights.entries if entry not in counters),
        alone=(
            (*weights.alone[0], *(entry.reference[0] for entry in counters)),
            (*weights.alone[1], *(entry.candidate[0] for entry in counters)),
        ),
    )
    moves = _moves(sides, weights)
    if moves is None or (
        not weights.is_identity and loop_counts_differ(reference.operations, candidate.operations)
    ):
        return None
    pairing, moved = pair_positions(*sides, others), {"moved_arguments": moves[0], "moved_results": moves[1]}
    return dataclasses.replace(
        pairing, alone=dataclasses.replace(pairing.alone, counters=len(counters), **moved)
    )


def pair_positions(reference: Side, candidate: Side, weights: WeightMap) -> Pairing:
    """Pairs the arguments and results of two sides, except the leaves whose numbers the map moves."""
    plain = [entry for entry in weights.entries if isinstance(entry.transform, Identity)]
    moving = _moving(weights)
    names = (
        {},
        {new: old for each in plain for new, old in zip(each.candidate, each.reference, strict=True)},
    )
    moved = (
        {path for entry in moving for path in entry.reference},
        {path for entry in moving for path in entry.candidate},
    )
    unmatched: list[Unmatched] = []

    def pair(named: Sequence[Mapping[int, Name]], read: bool) -> tuple[Positions, Alone]:
        """Returns the pairs by name, and each side's positions of leaves that the map leaves alone."""
        alone, rest = [], []
        for by_position, single, gone, new in zip(named, weights.alone, moved, names, strict=True):
            leaves = {at: path for at, (of, path) in by_position.items() if of in BY_LEAF}
            alone.append(tuple(at for at, path in leaves.items() if path in single))
            left_out = {*single, *gone}
            rest.append(
                {
                    (of, new.get(path, path) if of in BY_LEAF else path): at
                    for at, (of, path) in by_position.items()
                    if leaves.get(at) not in left_out
                }
            )
        for side, other in ((0, 1), (1, 0)):
            unmatched.extend(
                Unmatched(name=" ".join(name), side=side, position=rest[side][name], read=read)
                for name in sorted(rest[side].keys() - rest[other].keys())
            )
        pairs = [(at, rest[1][name]) for name, at in rest[0].items() if name in rest[1]]
        return pairs, (alone[0], alone[1])

    arguments, alone_read = pair((reference.read_arguments, candidate.read_arguments), read=True)
    results, alone_returned = pair(
        (dict(enumerate(reference.results)), dict(enumerate(candidate.results))), read=False
    )
    alone = UnpairedPositions(arguments=alone_read, results=alone_returned)
    return Pairing(arguments=arguments, results=results, unmatched=tuple(unmatched), alone=alone)


def _counts_equally(entry: Entry, sides: tuple[Side, Side]) -> bool:
    """True for a counter of two integer types that both sides only increment, by the same number.

    `parity.prove.counters` shows why it stays equal; the rest of the programs is still compared.
    """
    of_sides = list(zip(sides, (entry.reference[0], entry.candidate[0]), strict=True))
    leaves = [side.build.leaves[path] for side, path in of_sides]
    if not all(map(is_counter, leaves)) or leaves[0].dtype == leaves[1].dtype:
        return False

    def step(side: Side, path: str) -> tuple[int, tuple[str, ...]] | None:
        read, written = state_arguments(side).get(path), _returned(side, Group.STATE).get(path)
        return None if read is None or written is None else increment(side.operations, read, written)

    steps = {step(*each) for each in of_sides}
    widths = {leaf.dtype.removeprefix("u") for leaf in leaves}
    return isinstance(entry.transform, Identity) and None not in steps and len(steps) == len(widths) == 1


def state_arguments(side: Side) -> dict[str, int]:
    """Returns the position in ``@main`` of each state leaf that the program reads."""
    return {path: position for position, (kind, path) in side.read_arguments.items() if kind == STATE}


def _returned(side: Side, group: str) -> dict[str, int]:
    return {path: at for at, (of, path) in enumerate(side.results) if of == group}


def state_fingerprints(side: Side) -> dict[str, str]:
    """Returns ``{path: fingerprint}`` of how the program uses each state leaf that it reads."""
    prints = argument_fingerprints(side.lowered)
    return {path: prints[position] for path, position in state_arguments(side).items()}


def state_order(side: Side) -> dict[str, int]:
    """Returns ``{path: rank}`` of the first use of each state leaf in the traced program."""
    paths = side.state_paths
    return {paths[index]: rank for index, rank in first_uses(side.traced.jaxpr).items() if index < len(paths)}


def state_feeding(side: Side) -> dict[str, set[str]]:
    """Returns ``{module: paths}`` of the state leaves on which the new parameters of each outermost module depend."""
    written = grouped(
        (
            at
            for at, (group, path) in enumerate(side.results)
            if group == Group.STATE and side.build.leaves[path].role is Role.PARAMS
        ),
        lambda at: normalise(side.results[at][1]).partition("/")[0],
    )
    paths = dict(enumerate(side.state_paths))
    return {
        module: {paths[at] for at in Demand(side.traced.jaxpr, wanted, all_draws=False).inputs & paths.keys()}
        for module, wanted in written.items()
    }


def state_operations(side: Side) -> dict[str, set[str]]:
    """Returns ``{path: names}`` of the operations between each state leaf, or its product, and the next product.

    `PLAIN` ones are left out.
    """
    readers, found = users(side.operations), {}
    for path, position in state_arguments(side).items():
        names, waiting = set[str](), [side.operations.body.parameters[position]]
        bare = set(waiting)  # values that hold the leaf itself
        for value in waiting:  # grows
            for op, place in readers[value] if len(waiting) < MOST_VALUES else ():
                product, moves = op and op.name in PRODUCTS, op and op.name in MOVES
                if op is None or (product and value not in bare):
                    continue
                further = list(op.results)
                if op.form.kind is Kind.WHILE:
                    further = [region.parameters[place] for region in op.regions]
                    moves = True
                names |= set() if moves else {op.name} - PLAIN
                bare.update(further if value in bare and moves else ())
                waiting += [each for each in further if each not in waiting]
        found[path] = names
    return found


def unmatched_frontier(pairing: Pairing, sides: tuple[Side, Side]) -> tuple[Frontier, ...]:
    """Returns the arguments and results of one side as differences, each with the operation that uses it first.

    The leaves of a module of which only one side reads any are one difference.
    """
    groups: dict[tuple[str, str | FrontierSide | None], list[tuple[Unmatched, Op | None]]] = {}
    readers = [users(side.operations) for side in sides]
    modules = [_lone_modules(side, pairing.unmatched, at) for at, side in enumerate(sides)]
    for one in pairing.unmatched:
        op = _used_by(one, sides[one.side], readers[one.side])
        module = modules[one.side].get(one.position) if one.read else None
        groups.setdefault((one.verb, module or side_of(op)), []).append((one, op))
    entries = []
    for (verb, module), ones in list(groups.items())[:MOST_ENTRIES]:
        (one, _), more = ones[0], f" and {len(ones) - 1} more" if len(ones) > 1 else ""
        place = side_of(next((op for _, op in ones if op), None))
        is_input = one.read and one.name.startswith(f"{INPUT} ")
        if is_input and place:
            place = dataclasses.replace(place, place=_passed_at(place.place, one, sides))
        entries.append(
            Frontier(
                where=f"{module} with {len(ones)} leaves" if isinstance(module, str) else f"{one.name}{more}",
                differences=(verb,),
                reference=None if one.side else place,
                candidate=place if one.side else None,
                cause=LEFT_OUT if is_input else "",
            )
        )
    return tuple(entries)


def _passed_at(place: SourceLocation, one: Unmatched, sides: tuple[Side, Side]) -> SourceLocation:
    """Returns the source of the call that passes an input, by its name; the place if the other side names it, too."""
    word = re.split(r"[/ ]", one.name)[-1]
    own, other = (
        [
            frame
            for frame in called_frames(side.traced.jaxpr)
            if not frame.in_library and mentions(frame, word)
        ]
        for side in (sides[one.side], sides[1 - one.side])
    )
    outer = [at for at, frame in enumerate(place.frames) if frame in own]
    if other or not own or (not outer and len({frame.function for frame in own}) > 1):
        return place
    return dataclasses.replace(place, frames=place.frames[outer[-1] :] if outer else tuple(own[:1]))


def _lone_modules(side: Side, unmatched: Sequence[Unmatched], number: int) -> dict[int, str]:
    """Returns the outermost module, with several leaves, of each argument if only this side reads any of its leaves."""
    lone = {one.position for one in unmatched if one.read and one.side == number}
    paths = {at: path.split("/") for at, (kind, path) in side.read_arguments.items() if kind == STATE}
    paired = {tuple(path[:end]) for at, path in paths.items() if at not in lone for end in range(len(path))}
    outer = [
        (at, next(path[:end] for end in range(1, len(path) + 1) if tuple(path[:end]) not in paired))
        for at, path in paths.items()
        if at in lone
    ]
    return {
        at: f"{STATE} {'/'.join(path)}" for at, path in outer if [one for _, one in outer].count(path) > 1
    }


def _used_by(one: Unmatched, side: Side, readers: Mapping[int, Sequence]) -> Op | None:
    """Returns the first operation that reads an argument, or the one that makes a result."""
    body = side.operations.body
    if one.read:
        found = (op for op, _ in readers[body.parameters[one.position]] if op is not None)
    else:
        found = (op for op in body.ops if body.outputs[one.position] in op.results)
    return next(found, None)


def _moving(weights: WeightMap) -> list[Entry]:
    return [entry for entry in weights.entries if not isinstance(entry.transform, Identity)]


def _moves(
    sides: tuple[Side, Side], weights: WeightMap
) -> tuple[tuple[WeightView, ...], tuple[WeightView, ...]] | None:
    """Returns the transforms of the entries that move numbers, of arguments and of results; None if one is unknown."""
    moving = _moving(weights)

    groups = [group for group in sorted(sides[0].traced.out_info) if Group(group).by_leaf] if moving else []
    places = [("", [state_arguments(side) for side in sides])]
    places += [(f"{group} ", [_returned(side, group) for side in sides]) for group in groups]
    found = [[_view(entry, each, sides, prefix) for entry in moving] for prefix, each in places]
    known = [[view for view in views if view is not None] for views in found]
    if known != found:
        return None
    arguments, *results = (
        [view for view in views if view.positions(0) or view.positions(1)] for views in known
    )
    return tuple(arguments), tuple(itertools.chain(*results))


def _view(
    entry: Entry, positions: Sequence[Mapping[str, int]], sides: tuple[Side, Side], prefix: str
) -> WeightView | None:
    """Returns the transform of one entry; None if it is not known."""
    transform = entry.transform
    side = int(transform.splits)
    parts, wholes = (entry.candidate, entry.reference) if side else (entry.reference, entry.candidate)
    shapes = tuple(sides[side].build.leaves[path].shape for path in parts)
    steps = transform.steps(shapes[0])
    if steps is None or len(wholes) != 1:
        return None
    return WeightView(
        name=f"{prefix}{wholes[0]}",
        side=side,
        parts=tuple(positions[side].get(path) for path in parts),
        shapes=shapes,
        whole=positions[1 - side].get(wholes[0]),
        steps=steps,
    )
