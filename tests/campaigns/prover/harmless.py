"""Explains why a mutant that was not refused has the same meaning: one rule, stated and checked, for each."""

import re
from typing import Any

from campaigns.prover.edits import attribute, commutes, walk
from campaigns.prover.mutate import Mutant
from parity.ir.jax_internals import ir, is_main
from parity.ir.stablehlo.operations import Group, names_of
from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram
from parity.prove.numbering import Numbering, Table, number_program

__all__ = ["Original"]

_CHANNEL = re.compile(
    r"channel_handle: .*handle = [1-9]\d*, type = (\d+)> -> .*handle = [1-9]\d*, type = \1>"
)
_RETURNS = names_of(Group.ENDS)
_SLOTTED = (Kind.WHILE, Kind.BARRIER, Kind.BRANCH, Kind.MANUAL)


class Original:
    """A program before mutation, with the facts that the rules need.

    Args:
        program: the program as read.
    """

    def __init__(self, program: StableProgram):
        self._operations = walk(program.module_op)
        self._copies: dict[Any, list[Op]] = {}
        self._regions: dict[Any, list[tuple[Op, Region]]] = {}
        self._collect(program.body)
        self._main = program.body
        table = Table()
        numbers = {k: table.number(f"#argument {k}") for k in range(len(program.body.parameters))}
        self._numbering: Numbering = number_program(program, table, numbers)

    def _collect(self, region: Region) -> None:
        for op in region.ops:
            self._copies.setdefault(op.source, []).append(op)
            for inner in op.regions:
                self._collect(inner)

    def benign(self, mutant: Mutant) -> str:
        """Returns the rule by which a mutant has the meaning of the original, or an empty string."""
        operation = self._operations[mutant.index]
        if operation.name == "func.func":
            return self._benign_definition(operation, mutant)
        if operation.name in _RETURNS:
            return self._benign_return(operation, mutant)
        if operation.name == "func.call":
            return self._benign_call(operation, mutant)
        rule = self._benign_names(mutant.renamed)
        if rule or operation.name == "sdy.mesh":  # a definition is no operation that could be dead
            return rule
        return self._benign_operation(operation, mutant)

    def _benign_operation(self, operation: Any, mutant: Mutant) -> str:
        copies = [op for op in self._copies.get(operation, []) if op.live is not None]
        if not copies:
            return "dead code"
        if mutant.swapped is not None:
            positions = mutant.swapped
            pairs = [(op, [op.operands[k] for k in positions]) for op in copies]
            if all(op.form.kind in _SLOTTED and not set(positions) & set(op.live or ()) for op in copies):
                return "dead slot"
            env = self._numbering.env
            if positions[0] != positions[1] and all(env[a] == env[b] for _, (a, b) in pairs):
                return "both operands are the same value"
        if mutant.rewired is not None:
            return self._benign_rewire(copies, mutant.rewired)
        if _CHANNEL.fullmatch(mutant.detail):
            return "another positive channel of a collective: an identity, not a meaning"
        return ""

    def reorders(self, mutant: Mutant) -> bool:
        """Returns True if a mutant differs at most by the order of operands of commuting float operations."""
        operation = self._operations[mutant.index]
        if mutant.kind == "operand order":
            return commutes(operation, exactly=False)
        # Two results of a function that are used together only in such an operation.
        return operation.name in _RETURNS and bool(self._benign_return(operation, mutant, exactly=False))

    def _benign_definition(self, function: Any, mutant: Mutant) -> str:
        if mutant.kind == "argument pairing" and mutant.swapped:
            arguments = [function.regions[0].blocks[0].arguments[k] for k in mutant.swapped]
            return "" if any(list(each.uses) for each in arguments) else "arguments that nothing uses"
        return self._benign_names(mutant.renamed)

    def _benign_call(self, call: Any, mutant: Mutant) -> str:
        """A call has no record in the program as read: its operands are identified by the operations that make them."""
        if not any(list(result.uses) for result in call.results):
            return "results that no call uses"
        if mutant.rewired is None:
            return self._benign_names(mutant.renamed)
        return self._same_value(call, mutant.rewired)

    def _same_value(self, operation: Any, rewired: tuple[int, int, int]) -> str:
        position, maker, result = rewired
        values = operation.operands[position], self._operations[maker].results[result]
        old, new = (self._value_numbers(value) for value in values)
        return "the new operand is the same value" if old == new and len(old) == 1 else ""

    def _value_numbers(self, value: Any) -> set[int]:
        """Returns the numbers that a value has wherever its function is called."""
        env = self._numbering.env
        if not isinstance(value, ir.BlockArgument):
            result, owner = ir.OpResult(value).result_number, value.owner.operation
            if owner.name == "func.call":
                function = self._definition(owner.attributes["callee"].value)
                return self._value_numbers(_last(function.regions[0]).operation.operands[result])
            return {env[op.results[result]] for op in self._copies.get(owner, []) if op.live is not None}
        parent = value.owner.owner.operation
        places = [k for k, region in enumerate(parent.regions) if region.blocks[0] == value.owner]
        if parent.name == "func.func":
            return {env[self._main.parameters[value.arg_number]]} if is_main(parent) else set()
        return {
            env[op.regions[places[0]].parameters[value.arg_number]]
            for op in self._copies.get(parent, [])
            if op.live is not None
        }

    def _benign_names(self, names: tuple[str, str] | None) -> str:
        texts = {self._text(name) for name in names or ()}
        return "definitions of one text" if len(texts) == 1 else ""

    def _definition(self, name: str) -> Any:
        """Returns the function, the mesh or other definition with that name."""
        named = ((op, attribute(op, "sym_name")) for op in self._operations)
        return next(op for op, symbol in named if symbol is not None and symbol.value == name)

    def _text(self, name: str) -> str:
        """Returns a definition's text without its name, with callees replaced by their texts."""
        text = re.sub(
            r'@(?:"[^"]*"|[\w.$-]+)', "@", self._definition(name).get_asm(enable_debug_info=False), count=1
        )
        return re.sub(r"call @([\w.$-]+)\(", lambda match: f"call ({self._text(match.group(1))})(", text)

    def _benign_rewire(self, copies: list[Op], rewired: tuple[int, int, int]) -> str:
        position, maker, result = rewired
        if all(op.form.kind in _SLOTTED and _is_dead_operand(op, position) for op in copies):
            return "dead slot"
        env = self._numbering.env
        for op in copies:
            other = [each for each in self._copies.get(self._operations[maker], []) if each.chain is op.chain]
            if len(other) != 1 or self._number(other[0], result) != env[op.operands[position]]:
                return ""
        return "the new operand is the same value"

    def _number(self, op: Op, result: int) -> int:
        """Returns the number of a result; a dead constant has none yet."""
        if op.live is None and not op.operands and op.form.kind == Kind.PLAIN:
            return self._numbering.table.number(op.form.word)
        return self._numbering.env[op.results[result]]

    def _benign_return(self, operation: Any, mutant: Mutant, *, exactly: bool = True) -> str:
        """A return has no record in the program as read: its operands are the outputs of regions or of calls."""
        parent = operation.parent
        positions: list[int] = list(mutant.swapped or ())
        if mutant.rewired:
            positions = [mutant.rewired[0]]
        if parent.name == "func.func":
            return self._benign_function_return(parent, positions, exactly)
        regions = [
            (op, inner)
            for op in self._copies.get(parent, [])
            for number, inner in enumerate(op.regions)
            if op.live is not None and _last(parent.regions[number]) == operation
        ]
        if not regions:
            return "dead code"
        if all(op.form.kind in _SLOTTED and not set(positions) & set(op.live or ()) for op, _ in regions):
            return "dead slot"
        env = self._numbering.env
        if mutant.swapped and all(
            env[r.outputs[positions[0]]] == env[r.outputs[positions[1]]] for _, r in regions
        ):
            return "both outputs are the same value"
        return self._same_value(operation, mutant.rewired) if mutant.rewired else ""

    def _benign_function_return(self, function: Any, positions: list[int], exactly: bool) -> str:
        name = attribute(function, "sym_name").value
        calls = [
            op for op in self._operations if op.name == "func.call" and op.attributes["callee"].value == name
        ]
        users = [[list(call.results[k].uses) for k in positions] for call in calls]
        if name == "main":
            numbers = {self._numbering.env[self._main.outputs[k]] for k in positions}
            return "both outputs are the same value" if positions[1:] and len(numbers) == 1 else ""
        if not any(use for each in users for use in each):
            return "results that no call uses"
        if all(_meet(each, exactly) for each in users):
            return "results that meet only in one commuting operation"
        return ""


def _meet(uses: list[list[Any]], exactly: bool) -> bool:
    """True if two values have one use each, in the same operation, whose operands commute."""
    owners = [use.owner.operation for each in uses for use in each]
    return len(uses) == len(owners) == 2 and owners[0] == owners[1] and commutes(owners[0], exactly=exactly)


def _last(region: Any) -> Any:
    operations = region.blocks[0].operations
    return operations[len(operations) - 1].operation


def _is_dead_operand(op: Op, position: int) -> bool:
    if op.form.kind == Kind.BRANCH or op.form.kind == Kind.MANUAL:
        return False
    return position not in (op.live or ())
