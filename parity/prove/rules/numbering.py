"""Value numbering whose keys are first brought into normal form."""

from typing import Any

from parity.ir.mlir import attribute_items
from parity.ir.stablehlo.operations import Group, facts
from parity.ir.stablehlo.program import Form, Kind, Op, Region
from parity.prove.numbering import Numbering
from parity.prove.rules.branches import branch
from parity.prove.rules.contractions import reduction_pattern, sum_of_one
from parity.prove.rules.elementwise import elementwise
from parity.prove.rules.registry import NORMAL_FORMS
from parity.prove.rules.terms import Application, Normal, Terms, Value
from parity.prove.rules.types import Array, is_narrow, parse_array
from parity.prove.rules.views import whole

__all__ = ["RuledNumbering"]


class _Facts:
    """The function that normalises a form, its result type, and its attributes; None if the table lacks one."""

    __slots__ = ("attributes", "form", "normalise", "out")

    def __init__(self, form: Form, op: Op):
        self.form = form  # keeps the form alive, whose id is the key
        self.out = parse_array(form.slots_out[0]) if form.results == 1 else None
        self.normalise = NORMAL_FORMS.get(form.name)
        known = facts(form.name)
        read = self.normalise is not None or known.group is Group.ELEMENTWISE
        items = dict(attribute_items(op.source))
        self.attributes: dict[str, Any] | None = items if read and known.attributes >= set(items) else None


def _is_narrow(operands: list[Value], *types: Array) -> bool:
    return any(is_narrow(kind.element) for kind in (*(operand.type for operand in operands), *types))


class RuledNumbering(Numbering):
    """The numbers of one program's values, up to the rules that the table allows."""

    table: Terms

    def __init__(self, table: Terms, values: int, reorder: bool = False):
        super().__init__(table, values, reorder)
        self._facts: dict[int, _Facts] = {}
        self.vanished: set[int] = set()
        """First results of operations that rules removed: moves, and those equal to an operand or a constant."""

    def region(self, region: Region, depth: int) -> list[int]:
        """Numbers the live operations of a region as `Numbering` does, but each in normal form if it has one."""
        env, table = self.env, self.table
        effects: list[int] = []
        for op in region.ops:
            if op.live is None:
                continue
            self.visited += 1
            form = op.form
            if form.kind > Kind.COMMUTE or op.effect:
                self._special(op, depth, effects)
                continue
            operands = [env[value] for value in op.operands]
            key = (form.word, *operands)
            known = table.normal.get(key)
            if known is None:
                known = table.normal[key] = self._remembered(op, operands)
            else:
                table.use_again(known.used)
            number = known.number
            if known.vanished:
                self.vanished.add(op.results.start)
            if form.results == 1:
                env[op.results.start] = number
            else:
                for slot, value in enumerate(op.results):
                    env[value] = table.number(f"#result {slot}", number)
        return effects

    def _remembered(self, op: Op, operands: list[int]) -> Normal:
        """Returns the normal form for all operations with the same word and operands; it depends on nothing else."""
        table, form = self.table, op.form
        table.trail = []
        number, vanished = self._normal(op), False
        if number is None:
            if form.kind >= self._commuting:
                operands = sorted(operands)
            number = table.number(form.word, *operands)
        else:
            vanished = not table.built
        return Normal(number, vanished, tuple(table.trail))

    def _branch(self, op: Op, depth: int, tail: list[int]) -> int:
        chosen = None if op.effect else branch(self.table, self.env[op.operands[0]], len(op.regions))
        if chosen is None:
            return super()._branch(op, depth, tail)
        table, env = self.table, self.env
        taken, order = chosen
        effects = [self.region(op.regions[k], depth) for k in order]
        if any(effects):
            return super()._branch(op, depth, tail)
        for slot in op.live or ():
            outputs = [env[op.regions[k].outputs[slot]] for k in order]
            word = f"{op.form.bare} {op.form.slots_out[slot]}"
            env[op.results[slot]] = outputs[0] if taken is None else table.number(word, taken, *outputs)
        if taken is None:
            self.vanished.add(op.results.start)
            return table.number(f"#taken {op.form.bare}", *[env[op.results[slot]] for slot in op.live or ()])
        return table.number(op.form.bare, taken)

    def _opaque(self, op: Op, depth: int, tail: list[int]) -> int:
        if op.form.name != "stablehlo.reduce" or op.effect:
            return super()._opaque(op, depth, tail)
        return self._reduction(op, depth) or super()._opaque(op, depth, tail)

    def _reduction(self, op: Op, depth: int) -> int | None:
        """Numbers a reduction by the order of kept and reduced axes, regardless of their shape; None without a rule."""
        operands, out = self._operands(op), [parse_array(kind) for kind in op.form.slots_out]
        items = dict(attribute_items(op.source))
        if operands is None or set(items) != {"dimensions"}:
            return None
        self.table.narrow = _is_narrow(operands)
        if len(operands) == 2 and out[0] is not None:
            view = sum_of_one(self.table, operands[0], operands[1], list(items["dimensions"]), op.regions[0])
            if view is not None:
                self.vanished.add(op.results.start)
                number = self.env[op.results.start] = self.table.shaped(Value(view, out[0]))
                return number
        pattern = reduction_pattern(self.table, operands[0].type.shape, list(items["dimensions"]))
        if pattern is None:
            return None
        table, env = self.table, self.env
        inputs = len(operands) // 2
        flat = [table.flat(operand.view) for operand in operands[:inputs]]
        starts = [env[value] for value in op.operands[inputs:]]
        body = table.number("#regions", *[self._closed(each, depth + 1) for each in op.regions])
        kinds = [kind.element for kind in out if kind is not None]
        if len(kinds) < len(out):
            return None
        number = table.number(f"#reduction {pattern} {kinds}", *flat, *starts, body)
        for slot, (value, kind) in enumerate(zip(op.results, out, strict=True)):
            assert kind is not None
            part = number if len(out) == 1 else table.number(f"#result {slot}", number)
            env[value] = table.shaped(Value(whole(part, kind.count), kind))
        return number

    def _normal(self, op: Op) -> int | None:
        facts = self._facts.get(id(op.form))
        if facts is None:
            facts = self._facts[id(op.form)] = _Facts(op.form, op)
        if facts.out is None or facts.attributes is None:
            return None
        operands = self._operands(op)
        if operands is None:
            return None
        self.table.narrow = _is_narrow(operands, facts.out)
        self.table.built = False
        operation = Application(facts.attributes, facts.out, operands)
        if facts.normalise is not None:
            view = facts.normalise(self.table, operation)
        else:
            commutes = op.form.kind >= self._commuting
            view = elementwise(self.table, op.form.name, operation, commutes)
        if view is None:
            return None
        view = self.table.settled(view, facts.out.element)
        return self.table.shaped(Value(view, facts.out))

    def _operands(self, op: Op) -> list[Value] | None:
        """Returns the values of the operands; None if the rules do not know one of their types."""
        found = []
        for position, value in enumerate(op.operands):
            number = self.env[value]
            known = self.table.values.get(number)
            if known is None:
                kind = self._type(op, position)
                if kind is None:
                    return None
                known = self.table.value(number, kind)
            found.append(known)
        return found

    def _type(self, op: Op, position: int) -> Array | None:
        return parse_array(str(op.source.operands[position].type))
