"""Value numbering of inlined programs in a table that both sides share."""

import collections
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram, captures
from parity.prove.fusion import Fusions, fusions

# The prover's own words start with "#", which no operation name does.
_FIXED = ("stablehlo.constant", "stablehlo.iota")
_SEEN_THROUGH = names_of(Group.REARRANGES, Group.PICKS, "abs", "sqrt", "rsqrt", "cbrt", "power")
"""Operations that XLA simplifies together with the operation that reads them."""
_CROSSED = "#crossed"
"""The word of a value that a loop or a branch captures."""
_METHODS = {
    Kind.WHILE: "_loop",
    Kind.BRANCH: "_branch",
    Kind.BARRIER: "_barrier",
    Kind.MANUAL: "_manual",
    Kind.CONSTRAINT: "_constraint",
}
_EVERYWHERE, _CARRIED = object(), object()
"""The regions of constants, and of carries that a loop does not change."""


class Table:
    """Gives equal numbers to equal keys and different numbers to different keys; it does not rely on unique hashes.

    A key is a word followed by the numbers of the operands. Operands have lower numbers than their user.

    Attributes:
        enabled: names of the rules that may be used.
        used: number of uses of each rule.
    """

    enabled: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.used: collections.Counter[str] = collections.Counter()
        self.ids: dict[tuple, int] = {}
        self.nodes: list[tuple] = []
        self.commuting: set[str] = set()

    def number(self, *key) -> int:
        """Returns the number of a key ``(word, *operand numbers)``."""
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.nodes)
            self.nodes.append(key)
        return found

    def number_set(self, word: str, members: Sequence[int]) -> int:
        """Returns the number of a set of numbers; order and repetition do not matter."""
        self.commuting.add(word)
        return self.number(word, *sorted(set(members)))


class Numbering:
    """The numbers of one program's values.

    Args:
        table: shared by the programs that are compared.
        program: the program.
        reorder: True to ignore the order of the operands of float additions, products, minima and maxima.

    Attributes:
        effects: the numbers of the side effects, in order.
        fenced: False if results of barriers have the numbers of their operands.
    """

    def __init__(self, table: Table, program: StableProgram, reorder: bool = False):
        self.table, self.program = table, program
        self.effects: list[int] = []
        self._commuting = Kind.REORDER if reorder else Kind.COMMUTE
        self.env: list[int] = [-1] * program.values
        self.visited = 0
        self._memo: dict[tuple, tuple] = {}
        self._scope: tuple[int, ...] = ()
        self._region: Region | None = None
        self._fixed: dict[int, tuple[object, set[int]]] = {}
        """Values computed from constants: the region, and the calls through which they came."""
        self._computed: set[int] = set()
        """Floats and booleans computed from others than constants, and all values computed from them."""
        self._behind: dict[int, int] = {}
        """The values behind results of `_SEEN_THROUGH`."""
        self._squares: set[int] = set()
        """Products of two copies of one value."""
        self.fusions = Fusions()
        self.fenced = True

    def forget(self, fenced: bool = True) -> None:
        """Discards the numbered loops, so that the next numbering sets the values inside them.

        Args:
            fenced: False to number results of barriers like their operands, which only an explanation may do.
        """
        self._memo.clear()
        self.fenced = fenced

    def region(self, region: Region, depth: int) -> list[int]:
        """Numbers the live operations of a region whose parameters have numbers.

        Args:
            depth: number of enclosing regions that bind variables.

        Returns:
            The numbers of its side effects, in order.
        """
        effects: list[int] = []
        outer, self._region = self._region, region
        for op in region.ops:
            if op.live is None:
                continue
            self.visited += 1
            form = op.form
            hidden = self._hidden(op) if form.kind <= Kind.REGION and not op.effect else ""
            if op.results.start not in self._fixed and (
                form.may_fuse or not self._computed.isdisjoint(op.operands)
            ):
                self._computed.update(op.results)
            if form.kind > Kind.COMMUTE or op.effect:
                self._special(op, depth, effects, hidden)
            elif hidden:
                operands = [self.env[value] for value in op.operands]
                self._bind(op, self.table.number(f"{hidden} {form.word}", *operands))
            else:
                self._bind(op, self._plain(op))
        self._region = outer
        return effects

    def ends(self) -> list[int]:
        """Returns the numbers of the program's results."""
        return [self.env[value] for value in self.program.body.outputs]

    def _hidden(self, op: Op) -> str:
        """Returns as text which operands are known, but not known to be constants when XLA first simplifies.

        XLA does that before it inlines calls, and before it moves constants into loops and branches.
        """
        copies = self._copies(op)
        if self._fixed.keys().isdisjoint(op.operands) and (op.operands or op.form.name not in _FIXED):
            return copies
        found = [self._fixed.get(value) for value in op.operands]
        call, near, rounds = {id(op.chain)}, (_EVERYWHERE, self._region), False
        if None not in found:
            known = facts(op.form.name)
            rounds = known.group is Group.ELEMENTWISE and op.form.is_float
            rounds &= not (known.chooses or known.jumps)
            place = _EVERYWHERE if op.form.name == _FIXED[0] else self._region
            calls = call.union(*(each[1] for each in found if each and not rounds))
            self._fixed.update(dict.fromkeys(op.results, (place, calls)))
        hidden = [
            (at, "call" if each[0] in near else "region")
            for at, each in enumerate(found)
            if each and (each[0] not in near or (rounds and each[1] != call))
        ]
        return f"#hidden {hidden}{copies}" if hidden else copies

    def _copies(self, op: Op) -> str:
        """Returns as text how often floats that an operation reads are computed: XLA simplifies before it shares."""
        sees_through = op.form.name in _SEEN_THROUGH and bool(op.operands)
        if sees_through:
            self._behind[op.results.start] = op.operands[0]
        if not op.form.is_float:
            return ""
        is_root = sees_through and not self._squares.isdisjoint(op.operands)
        more, level = [], op.operands if is_root or len(op.operands) > 1 else ()  # one value is no copy
        while level:
            read = self._computed.intersection(level)
            more.append(len(read) - len({self.env[value] for value in read}) if len(read) > 1 else 0)
            level = [self._behind[value] for value in level if value in self._behind]
        if any(more) and op.form.name == "stablehlo.multiply" and self._behind.keys().isdisjoint(op.operands):
            self._squares.update(op.results)
            return ""
        return f"#copies {more}" if any(more) or is_root else ""

    def _plain(self, op: Op) -> int:
        """Returns the number of a pure function of its operands."""
        form, env = op.form, self.env
        operands = [env[value] for value in op.operands]
        if form.kind >= self._commuting and op.results.start not in self.fusions.ordered:
            operands.sort()
            self.table.commuting.add(form.word)
        return self.table.number(form.word, *operands)

    def _bind(self, op: Op, number: int) -> int:
        """Gives the results of an operation their numbers; returns the operation's."""
        if len(op.results) == 1:
            self.env[op.results.start] = number
        else:
            for slot, value in enumerate(op.results):
                self.env[value] = self.table.number(f"#result {slot}", number)
        return number

    def _special(self, op: Op, depth: int, effects: list[int], hidden: str) -> None:
        # An operation with side effects is identified by its position in the order of side effects within the enclosing
        # operation. Therefore values of different positions are never confused.
        scope, tail = self._scope, [self.table.number(hidden)] if hidden else []
        if op.effect:
            tail = [self.table.number(f"#effect {len(effects)}", *scope)]
            self._scope = (tail[0],)
        number = getattr(self, _METHODS.get(op.form.kind, "_opaque"))(op, depth, tail)
        self._scope = scope
        if op.effect:
            effects.append(number)

    def _opaque(self, op: Op, depth: int, tail: list[int]) -> int:
        """Numbers an operation whose regions are closed functions of their parameters, by position."""
        table, env = self.table, self.env
        if op.regions:
            tail = [*tail, table.number("#regions", *[self._closed(each, depth + 1) for each in op.regions])]
        return self._bind(op, table.number(op.form.word, *[env[value] for value in op.operands], *tail))

    def _closed(self, region: Region, depth: int) -> int:
        table, env = self.table, self.env
        for position, (value, kind) in enumerate(zip(region.parameters, region.types, strict=True)):
            env[value] = table.number(f"#parameter {depth} {position} {kind}")
        effects = self.region(region, depth)
        done = table.number("#effects", *effects)
        return table.number("#region", done, *[env[value] for value in region.outputs])

    def _constraint(self, op: Op, *_: Any) -> int:
        """Numbers a closed sharding constraint; a constraint on the result of the same constraint is dropped."""
        operand, word = self.env[op.operands[0]], op.form.word
        repeated = self.table.nodes[operand][0] == word
        number = self.env[op.results[0]] = operand if repeated else self.table.number(word, operand)
        return number

    def _barrier(self, op: Op, *_: Any) -> int:
        table, env, form = self.table, self.env, op.form
        live = op.live or ()
        if not self.fenced:
            env[op.results.start : op.results.stop] = [env[value] for value in op.operands]
            return -1
        members = [table.number(f"#member {form.slots_out[k]}", env[op.operands[k]]) for k in live]
        group = table.number(form.bare, table.number_set("#group", members))
        for slot, member in zip(live, members, strict=True):
            env[op.results[slot]] = table.number("#barrier", group, member)
        return group

    def _branch(self, op: Op, depth: int, tail: list[int]) -> int:
        return self._choice(op, depth, tail, self.env[op.operands[0]], op.regions)

    def _choice(self, op: Op, depth: int, tail: list[int], index: int, regions: Sequence[Region]) -> int:
        """Numbers a branch by the number of an index and the regions that it chooses from."""
        table, env, form = self.table, self.env, op.form
        with self.inside(op):
            effects = [table.number("#effects", *self.region(each, depth)) for each in regions]
            outputs = {slot: [env[each.outputs[slot]] for each in regions] for slot in op.live or ()}
        tail = [*tail, *effects] if op.effect else tail
        for slot, ends in outputs.items():
            word = f"{form.bare} {form.slots_out[slot]}"
            env[op.results[slot]] = table.number(word, index, *tail, *ends)
        return table.number(form.bare, index, *tail)

    @contextlib.contextmanager
    def inside(self, op: Op) -> Iterator[None]:
        """Gives the values that a loop or a branch captures the numbers that they have inside, in this block."""
        outer = {value: self.env[value] for value in captures(op)}
        for value in outer:
            self.env[value] = self._inner(value)
        yield
        for value, number in outer.items():
            self.env[value] = number

    def _inner(self, value: int) -> int:
        """Returns the number of a value inside a loop or branch: another one if XLA may simplify its computation.

        XLA simplifies and fuses an operation with its readers only within one computation, so that the same expression
        inside may be rounded differently.
        """
        number = self.env[value]
        return self._crossed(number) if value in self._computed else number

    def _crossed(self, number: int) -> int:
        return number if self.table.nodes[number][0] == _CROSSED else self.table.number(_CROSSED, number)

    def carries(self, op: Op, depth: int) -> tuple[dict[int, int], list[int]]:
        """Returns the initial colour of each live carry of a loop, and the carries that the body changes."""
        table, body = self.table, op.regions[1]
        colours, moving = {}, []
        for slot in op.live or ():
            # A carry with an attribute, such as its sharding, has a meaning even if it keeps its value.
            if not op.form.attributed and body.outputs[slot] == body.parameters[slot]:
                colours[slot] = self._inner(op.operands[slot])
            else:
                word = f"#carry {depth} {op.form.slots_out[slot]}"
                colours[slot] = table.number(word, self.env[op.operands[slot]])
                moving.append(slot)
        return colours, moving

    def _manual(self, op: Op, depth: int, tail: list[int]) -> int:
        """Numbers ``manual_computation``: a parameter is a shard of an operand, a result is assembled from shards."""
        table, env, form = self.table, self.env, op.form
        (region,) = op.regions
        for position, (outer, inner) in enumerate(zip(op.operands, region.parameters, strict=True)):
            if env[outer] >= 0:
                env[inner] = table.number(f"#shard {form.bare} {form.slots_in[position]}", env[outer])
        effects = self.region(region, depth)
        if op.effect:
            tail = [*tail, table.number("#effects", *effects)]
        for slot in op.live or ():
            word = f"#unshard {form.bare} {form.slots_out[slot]}"
            env[op.results[slot]] = table.number(word, env[region.outputs[slot]], *tail)
        return table.number(form.bare, *tail)

    def _loop(self, op: Op, depth: int, tail: list[int]) -> int:
        """Numbers a loop, or takes the numbers that an inner loop got in an earlier round from the same inputs."""
        env, live = self.env, op.live or ()
        if not depth:
            return self._refine(op, depth, tail, live)
        read = [*(op.operands[slot] for slot in live), *captures(op)]
        known = (id(op), *tail, *[env[value] for value in read])
        if known not in self._memo:
            number = self._refine(op, depth, tail, live)
            self._memo[known] = number, {op.results[slot]: env[op.results[slot]] for slot in live}
        number, outputs = self._memo[known]
        for value, output in outputs.items():
            env[value] = output
        return number

    def _refine(self, op: Op, depth: int, tail: list[int], live: tuple[int, ...]) -> int:
        """Numbers a loop by colour refinement of its live carries; docs/soundness.md has the argument."""
        table, env = self.table, self.env
        condition, _ = op.regions
        colours, moving = self.carries(op, depth)
        self._enter(op, moving)
        effects, updates = self._stabilise(op, depth, colours, moving)
        for slot in live:
            env[condition.parameters[slot]] = colours[slot]
        with self.inside(op):
            test_effects = self.region(condition, depth + 1)
        steps = {slot: table.number("#step", colours[slot], updates[slot]) for slot in moving}
        if op.effect:
            tail = [*tail, table.number("#effects", *test_effects), table.number("#effects", *effects)]
        identity = table.number(
            f"#loop {op.form.bare}",
            env[condition.outputs[0]],
            table.number_set("#steps", list(steps.values())),
            *tail,
        )
        for slot in live:
            # A carry that keeps its value needs no loop; all others are identified by their steps.
            last = table.number("#exit", identity, steps[slot]) if slot in steps else env[op.operands[slot]]
            env[op.results[slot]] = last
        return identity

    def _enter(self, op: Op, moving: Sequence[int]) -> None:
        """Records what is known of the carries of a loop."""
        for slot, start in enumerate(op.operands):
            for held in (*(each.parameters[slot] for each in op.regions), op.results[slot]):
                self._hold(held, start, slot in moving)

    def _hold(self, held: int, start: int, moves: bool) -> None:
        """Records that a carry is known if its start is, and the loop does not change it."""
        self._fixed.pop(held, None)
        if start in self._fixed and not moves:
            self._fixed[held] = (_CARRIED, set())

    def _stabilise(
        self, op: Op, depth: int, colours: dict[int, int], moving: list[int]
    ) -> tuple[list[int], dict[int, int]]:
        """Splits colours in place until carries of one colour have one update; returns effects and updates."""
        table, env, body = self.table, self.env, op.regions[1]
        while True:
            for slot, colour in colours.items():
                env[body.parameters[slot]] = colour
            with self.inside(op):
                effects = self.region(body, depth + 1)
                updates = {slot: env[body.outputs[slot]] for slot in moving}
            split = split_classes(colours, updates)
            if not split:
                return effects, updates
            for slot in moving:
                if colours[slot] in split:
                    colours[slot] = table.number("#split", colours[slot], updates[slot])


def split_classes(colours: dict[int, int], updates: dict[int, int]) -> set[int]:
    """Returns the colours whose carries do not all have the same update."""
    first: dict[int, int] = {}
    return {
        colours[slot] for slot, update in updates.items() if first.setdefault(colours[slot], update) != update
    }


def number_program(
    program: StableProgram,
    table: Table,
    arguments: Mapping[int, int],
    *,
    reorder: bool = False,
    kind: type[Numbering] = Numbering,
) -> Numbering:
    """Numbers a program.

    Args:
        arguments: a number for each argument of ``@main`` by position, except hoisted constants.
        reorder: see `Numbering`.
    """
    numbering = kind(table, program, reorder)
    found = fusions(program)
    numbering.fusions = Fusions(moved=found.moved) if reorder else found
    for position, value in enumerate(program.body.parameters):
        word = program.constants.get(position)
        numbering.env[value] = arguments[position] if word is None else table.number(f"#hoisted {word}")
    numbering.effects = numbering.region(program.body, 0)
    return numbering


def users(program: StableProgram) -> dict[int, list[tuple[Op | None, int]]]:
    """Returns the readers of each value with the operand's position; None for a region that returns it."""
    found: dict[int, list[tuple[Op | None, int]]] = collections.defaultdict(list)
    for value in program.body.outputs:
        found[value].append((None, 0))
    for each in program.body.walk():
        if each.live is not None:
            for place, value in enumerate(each.operands):
                found[value].append((each, place))
            for value in (value for region in each.regions for value in region.outputs):
                found[value].append((None, 0))
    return found
