"""Value numbering whose keys are first brought into normal form."""

import collections
import dataclasses
import functools
from collections.abc import Sequence

from parity.ir.stablehlo.operations import Group, facts, names_of
from parity.ir.stablehlo.program import Kind, Op, StableProgram, is_float
from parity.prove.numbering import Numbering
from parity.prove.rules.contractions import reduction_pattern, sum_of_one
from parity.prove.rules.elementwise import elementwise
from parity.prove.rules.logic import branch
from parity.prove.rules.moves import window_replaced
from parity.prove.rules.registry import NORMAL_FORMS
from parity.prove.rules.terms import Application, Terms, Value
from parity.prove.rules.types import Array, is_narrow, is_whole_number, parse_array
from parity.prove.rules.views import View, whole

_SUMS = names_of("add", "subtract")
_WRITES = names_of("scatter", "dynamic_update_slice")
"""XLA removes a write of a whole array only after it has simplified what is around it."""
_AT_ONCE = names_of("reshape", "broadcast_in_dim", "transpose", "convert")
"""Moves that XLA removes before it simplifies their readers."""
Made = tuple[int, ...] | str | None
"""The shape in which a float was computed, or a move as text if XLA removes that late; None for arguments, constants
and sums of several elements, of which XLA makes no other operation; () for such a sum behind a late move."""


class RuledNumbering(Numbering):
    """The numbers of one program's values, up to the rules that the table allows."""

    table: Terms

    def __init__(self, table: Terms, program: StableProgram, reorder: bool = False):
        super().__init__(table, program, reorder)
        self.vanished: set[int] = set()
        """First results of operations that rules removed: moves, and those equal to an operand or a constant."""
        self._written: dict[int, int] = {}
        """Numbers, by no rule, of values that are computed from constants and iotas only."""
        self._tables: set[int] = set()
        """Constants that are not one number everywhere, and values that are computed from them."""
        self._stated: set[int] = set()
        """Constants, also repeated. A quotient of other known numbers is a product if XLA sees the divisor first."""
        self._certain: set[int] = set()
        """Constants, single numbers computed from them, and such booleans repeated; compilers fold no other arrays."""
        self._made: dict[int, Made] = {}
        self._slow: set[int] = set()
        """Floats behind a move that XLA removes late."""

    def _plain(self, op: Op) -> int:
        """Returns the number of a pure function, in normal form if it has one; the table remembers it."""
        table = self.table
        if (written := self._as_written(op)) is not None:
            return written
        table.ordered = op.results.start in self.fusions.ordered
        table.moved = op.results.start in self.fusions.moved
        table.certain = self._certain.issuperset(op.operands[:1])
        operands = [self.env[value] for value in op.operands]
        key = (op.form.word, table.ordered, table.moved, table.certain, *operands)
        if key not in table.normal:
            before, table.used = table.used, collections.Counter()
            number = self._normal(op)
            vanished = number is not None and not table.built
            number = super()._plain(op) if number is None else number
            table.normal[key] = number, vanished, table.used
            table.used = before
        number, vanished, used = table.normal[key]
        if used:
            table.used.update(used)
        if vanished:
            self.vanished.add(op.results.start)
        if op.form.name == "stablehlo.constant":
            value = table.values.get(number)
            self._certain.update(op.results)
            self._tables.update(() if value and value.view.is_splat else op.results)
        elif self._certain.issuperset(op.operands):
            out, repeats = parse_array(op.form.slots_out[0]), op.form.name == "stablehlo.broadcast_in_dim"
            if out is not None and (out.count == 1 or (repeats and out.element == "i1")):
                self._certain.update(op.results)
        if not self._tables.isdisjoint(op.operands):
            self._tables.update(op.results)
        return number

    def _bind(self, op: Op, number: int) -> int:
        """Binds the results; a computed float in another shape than that in which it was computed is another value."""
        value, source = op.results.start, self._source(number)
        self._made.pop(value, None)
        self._slow.discard(value)
        if op.form.name == "stablehlo.reduce" and self._adds_up(op):
            self._made.update(dict.fromkeys(op.results))
        # A source has no higher number than any view of it: most results have a new one.
        counts = source <= max(map(self.env.__getitem__, op.operands), default=-1)
        counts &= number in self.table.values and value not in self.fusions.moved
        for position, operand in enumerate(op.operands if counts else ()):
            if self._source(self.env[operand]) == source:
                kind = parse_array(str(op.source.operands[position].type))
                written = op.form.name in _WRITES
                made = op.form.shapes[0] if written else self._shape(operand, kind)
                self._made[value] = self._late(op, operand, self.table.values[number], made)
                number = self._reshaped(self.table.values[number], self._made[value])
        return super()._bind(op, number)

    def _late(self, op: Op, operand: int, moved: Value, made: Made) -> Made:
        """Returns where a moved float was computed, or the move if XLA removes it after it simplifies the readers."""
        table, before, shape = self.table, self.table.values.get(self.env[operand]), moved.type.shape
        if made == "stablehlo.reshape True":  # only unit axes; XLA makes one of two reshapes
            again = before is not None and before.view.repeats and op.form.name == "stablehlo.reshape"
            made = None if again else f"{made}, {op.form.name}"
        if isinstance(made, str) or before is None or table.known(moved.view) is not None:
            return made
        if before.view.repeats and op.form.name != "stablehlo.broadcast_in_dim":
            kept = [[size for size in each if size > 1] for each in (before.type.shape, shape)]
            return f"{op.form.name} {kept[0] == kept[1]}"
        if not moved.view.is_whole or (op.form.name in _AT_ONCE and operand not in self._slow):
            return made
        self._slow.update(op.results)
        if made is None:
            return None if table.is_given(moved.view.source) else ()
        return op.form.name if made == shape else made

    def _shape(self, value: int, kind: Array | None) -> Made:
        """Returns the shape in which a float was computed; None if it may be read in any shape."""
        known = self.table.values.get(self.env[value])
        if value in self._made or known is None or kind is None:
            return self._made.get(value, kind and kind.shape)
        is_given = value in self._stated or self.table.is_given(known.view.source)
        return None if is_given else self.table.reshaped.get(known.view.source, (0, kind.shape))[1]

    def _reshaped(self, known: Value, made: Made) -> int:
        """Returns the number of a moved value, for floats and converted booleans by both shapes."""
        table, view, shape = self.table, self.table.plain(known.view), known.type.shape
        term = table.terms.get(view.source)
        rounds = is_float(f"<{known.type.element}") or (
            term is not None and (term.name, term.elements) == ("convert", ("i1",))
        )
        if made is not None and rounds and "past-moves" not in table.enabled:
            same = made == shape
            if not (view.is_whole or isinstance(made, str)):
                same = _units(made) == _units(shape) and (view.repeats or len(made) == len(shape))
            if not same:
                source = table.number(f"#reshaped {made} {shape}", view.source)
                table.reshaped[source] = view.source, made
                view = dataclasses.replace(view, source=source)
        return table.shaped(Value(view, known.type))

    def _reads_plain(self, operand: Value, adds: bool) -> bool:
        """True if no move between an operand and its elementwise reader matters to XLA."""
        source, made = self.table.reshaped.get(operand.view.source, (operand.view.source, None))
        if operand.view.repeats:
            return not isinstance(made, str)
        term = self.table.terms.get(source)
        return made == () or (adds and term is not None and term.name in ("multiply", "divide"))

    def _source(self, number: int) -> int:
        known = self.table.values.get(number)
        return self.table.plain(known.view).source if known else number

    def _hold(self, held: int, start: int, moves: bool) -> None:
        super()._hold(held, start, moves)
        if not moves:
            self._keep_shape(held, start)

    def _keep_shape(self, value: int, same: int) -> None:
        """Gives a value the shape in which another one, which it equals, was computed."""
        self._made.pop(value, None)
        if same in self._made:
            self._made[value] = self._made[same]

    def ends(self) -> list[int]:
        """Returns the numbers of the results, regardless of the shape in which they were computed."""
        table = self.table
        return [
            table.shaped(Value(table.plain(known.view), known.type))
            if (known := table.values.get(number))
            else number
            for number in super().ends()
        ]

    def _hidden(self, op: Op) -> str:
        """Returns which operands the compiler does not see at first; none of them if integers count by value."""
        hidden = super()._hidden(op)
        return "" if hidden and self.table.is_by_value() else hidden

    def _as_written(self, op: Op) -> int | None:
        """Returns the number, by no rule, of floats that are computed from integers of constants; None for all others.

        Compilers compute some of these when they compile, others at run time, with other rounding. It depends on
        how the integers are written.
        """
        if not all(value in self._written for value in op.operands):
            return None
        operands = [self._written[value] for value in op.operands]
        number = self.table.number(f"#written {op.form.word}", *operands)
        if op.form.name in ("stablehlo.constant", "stablehlo.broadcast_in_dim") and self._stated.issuperset(
            op.operands
        ):
            self._stated.update(op.results)
        for slot, value in enumerate(op.results):
            self._written[value] = self.table.number(f"#result {slot}", number)
        kinds = [
            parse_array(text) for text in (op.form.slots_out[0], *(str(x.type) for x in op.source.operands))
        ]
        exact = [kind is not None and is_whole_number(kind.element) for kind in kinds]
        divides = op.form.name == "stablehlo.divide" and not self._stated.issuperset(op.operands)
        if exact[0] or not (divides or (any(exact) and not self._tables.isdisjoint(op.operands))):
            return None
        return None if self.table.is_by_value() else number

    def _normal(self, op: Op) -> int | None:
        """Returns the number of an operation's normal form; None if the rules do not know it or what it works on."""
        form, known, table = op.form, facts(op.form.name), self.table
        normalise, is_elementwise = NORMAL_FORMS.get(form.name), known.group is Group.ELEMENTWISE
        if normalise is None and is_elementwise:
            commutes = form.kind >= self._commuting
            normalise = functools.partial(elementwise, name=form.name, commutes=commutes)
        out = parse_array(form.slots_out[0]) if len(form.types) == 1 else None
        if normalise is None or out is None or not known.attributes >= set(form.attributes):
            return None
        operands = self._operands(op)
        if operands is None:
            return None
        if is_elementwise:
            adds = form.name in _SUMS and all(table.known(x.view) != 0 for x in operands)
            operands = [
                Value(table.plain(x.view), x.type) if self._reads_plain(x, adds) else x for x in operands
            ]
        table.narrow = _is_narrow(operands, out)
        table.built = False
        view = normalise(table, Application(form.attributes, out, operands))
        return None if view is None else table.shaped(Value(table.settled(view, out.element), out))

    def _operands(self, op: Op) -> list[Value] | None:
        """Returns the values of the operands; None if the rules do not know one of their types."""
        found = []
        for position, value in enumerate(op.operands):
            known = self.table.values.get(self.env[value])
            if known is None:
                kind = parse_array(str(op.source.operands[position].type))
                if kind is None:
                    return None
                known = self.table.value(self.env[value], kind)
            found.append(known)
        return found

    def _branch(self, op: Op, depth: int, tail: list[int]) -> int:
        table, env = self.table, self.env
        index = env[op.operands[0]]
        for value in op.results:
            self._made.pop(value, None)
        chosen = None if op.effect else branch(table, index, len(op.regions), op.operands[0] in self._certain)
        if chosen is None:
            return super()._branch(op, depth, tail)
        taken, order = chosen
        if taken is not None:
            return self._choice(op, depth, tail, taken, [op.regions[k] for k in order])
        region = op.regions[order[0]]
        self.region(region, depth)
        for slot in op.live or ():
            env[op.results[slot]] = env[region.outputs[slot]]
            self._keep_shape(op.results[slot], region.outputs[slot])
        self.vanished.add(op.results.start)
        return table.number(f"#taken {op.form.bare}", *[env[op.results[slot]] for slot in op.live or ()])

    def _crossed(self, number: int) -> int:
        table, value = self.table, self.table.values.get(number)
        if value is None or value.view.repeats:
            return super()._crossed(number)
        if table.is_given(value.view.source) and value.view.is_straight:
            return number
        view = dataclasses.replace(value.view, source=super()._crossed(value.view.source))
        return table.shaped(Value(view, value.type))

    def _opaque(self, op: Op, depth: int, tail: list[int]) -> int:
        methods = {"stablehlo.reduce": self._reduction, "stablehlo.scatter": self._scatter}
        method, table = None if tail else methods.get(op.form.name), self.table
        out = parse_array(op.form.slots_out[0]) if method else None
        if method is None or out is None or (operands := self._operands(op)) is None:
            return super()._opaque(op, depth, tail)
        table.narrow = _is_narrow(operands)
        table.moved, table.built = op.results.start in self.fusions.moved, False
        view = method(op, operands, out, depth)
        if view is None:
            return super()._opaque(op, depth, tail)
        self.vanished.update(() if table.built else op.results)
        return self._bind(op, table.shaped(Value(view, out)))

    def _scatter(self, op: Op, operands: Sequence[Value], out: Array, _: int) -> View | None:
        """Returns a scatter that replaces one window at a known place; None for all others."""
        (body,) = op.regions
        if len(operands) != 3 or body.outputs != body.parameters[1:]:
            return None
        text = str(op.form.attributes["scatter_dimension_numbers"])
        return window_replaced(self.table, text, out, operands)

    def _reduction(self, op: Op, operands: Sequence[Value], out: Array, depth: int) -> View | None:
        """Returns a reduction by the order of kept and reduced axes, regardless of their shape; None without a rule."""
        table = self.table
        if len(operands) != 2 or set(op.form.attributes) != {"dimensions"}:
            return None
        axes, view = list(op.form.attributes["dimensions"]), None
        if op.operands[0] not in self._written or out.element == "i1":
            view = sum_of_one(table, operands[0], operands[1], axes, op.regions[0])
        if view is not None:
            self._certain.update(op.results if op.operands[0] in self._certain else ())
            return view
        pattern = reduction_pattern(table, operands[0].type.shape, axes)
        if pattern is None:
            return None
        flat, body = table.flat(operands[0].view), self._closed(op.regions[0], depth + 1)
        table.built = True
        word = f"#reduction {pattern} {out.element}"
        return whole(table.number(word, flat, self.env[op.operands[1]], body), out.count)

    def _adds_up(self, op: Op) -> bool:
        """True if a reduction is over several elements that are not one repeated."""
        known, kind = self.table.values.get(self.env[op.operands[0]]), op.source.operands[0].type
        axes = op.form.attributes["dimensions"]
        return all(kind.shape[axis] > 1 for axis in axes) and not (known and known.view.repeats)


def _units(shape: Sequence[int]) -> list[int]:
    """Returns the axes of size one."""
    return [axis for axis, size in enumerate(shape) if size == 1]


def _is_narrow(operands: Sequence[Value], *types: Array) -> bool:
    return any(is_narrow(kind.element) for kind in (*(operand.type for operand in operands), *types))


def shared_alike(strict: Sequence[Numbering], ruled: Sequence[RuledNumbering]) -> bool:
    """True if each value that rules equate has equally many strict numbers on both sides.

    One side may write a value in two forms, the other twice in one form. The compiler shares equal
    expressions, so it computes the value twice on one side and once on the other. Fusion with its readers differs, and
    so may the rounding.
    """
    left, right = map(_forms, strict, ruled)
    return all(len(left[value]) == len(right[value]) for value in left.keys() & right.keys())


def _forms(strict: Numbering, ruled: RuledNumbering) -> dict[int, set[int]]:
    """Returns the strict numbers of each value that a program computes, by the number that it has with rules."""
    found: dict[int, set[int]] = collections.defaultdict(set)
    for op in ruled.program.body.walk():
        computes = op.live is not None and op.form.kind <= Kind.REGION and op.results
        if computes and op.results.start not in ruled.vanished:
            for result in op.results:
                if ruled.env[result] < 0:  # inside an operation that rules removed
                    continue
                value = ruled.table.values.get(ruled.env[result])
                found[value.view.source if value else ruled.env[result]].add(strict.env[result])
    return found
